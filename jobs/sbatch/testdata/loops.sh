#!/bin/bash
#SBATCH --ntasks=3 --nodes=2
for lr in 0.1 0.01; do
  srun python train.py --lr $lr
done
if [ -n "$RESUME" ]; then ARGS="--resume"; fi
srun python train.py $ARGS --out $SCRATCH/run
