#!/bin/bash
#SBATCH --partition=gpu
#SBATCH --gpus=1
#SBATCH --time=90
#SBATCH --mem=32GB
source ~/miniconda3/etc/profile.d/conda.sh
conda activate torch
python3 finetune.py --seed 1 | tee out.log
python3 evaluate.py
