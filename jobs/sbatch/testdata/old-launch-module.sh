#!/bin/sh
#SBATCH -J bert -N 1 -n 1
#SBATCH --gres=gpu:v100:8 -c 40 -p gpu
#SBATCH -t 720
. /opt/env/venv/bin/activate
GPUS=8
NODES=1
LR=${LR:-3e-4}
python -m torch.distributed.launch --nproc_per_node=$GPUS --nnodes=$NODES \
  --node_rank=$SLURM_NODEID run_mlm.py \
  --lr "$LR" --output_dir "out dir"
