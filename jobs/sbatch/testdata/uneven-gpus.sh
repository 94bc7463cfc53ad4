#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks=5
#SBATCH --gpus=5
#SBATCH --gpus-per-task=1
srun python train.py
