#!/bin/bash
#SBATCH --nodes=2-4
#SBATCH --gpus-per-node=a100:2
source venv/bin/activate
export WANDB_MODE=offline WANDB_DIR=$TMPDIR
accelerate launch --num_processes 4 train.py
