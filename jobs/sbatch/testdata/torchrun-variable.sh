#!/bin/bash
#SBATCH --job-name=imagenet
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=04:00:00

srun torchrun --nnodes=2 --nproc-per-node=4 train.py --data $SCRATCH/imagenet
