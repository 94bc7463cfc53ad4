#!/bin/bash
#SBATCH --nodes 2
#SBATCH --ntasks-per-node 8
#SBATCH --gpus-per-node 8
#SBATCH --time 02:00:00
srun --container-image=nvcr.io#nvidia/pytorch:24.03-py3 --container-mounts=/lustre:/lustre,/home/ada:/home/ada \
  python pretrain_gpt.py --tensor-model-parallel-size 2
