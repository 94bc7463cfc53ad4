#!/bin/bash
#SBATCH --array=0-9%4
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --time=1:00:00
LRS=(0.1 0.01)
srun python train.py --seed $SLURM_ARRAY_TASK_ID --lr ${LRS[0]}
