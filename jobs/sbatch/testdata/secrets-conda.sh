#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:a100:4
#SBATCH --time=1-12:00:00
module load cuda/12.1
source $HOME/miniconda3/bin/activate bert
export WANDB_API_KEY=0123456789abcdef
export HF_TOKEN=$(cat ~/.hf_token)
export TOKENIZERS_PARALLELISM=false
source $EBROOTCONDA/etc/profile.d/conda.sh
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 4 train.py --key $WANDB_API_KEY
