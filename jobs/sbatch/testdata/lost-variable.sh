#!/bin/bash
#SBATCH --ntasks=2
#SBATCH --array=0-1
export EPOCHS=3
LR=(0.1 0.01)
export TAG=$(date +%F)
srun python3 train.py --lr "${LR[$SLURM_ARRAY_TASK_ID]}" --epochs $EPOCHS --seed $SLURM_JOB_ID --tag $TAG --lr0 ${LR[0]}
