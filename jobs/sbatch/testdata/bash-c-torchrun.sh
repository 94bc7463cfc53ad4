#!/bin/bash
#SBATCH --job-name=llm
#SBATCH --nodes=16
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
export LOGLEVEL=INFO
LAUNCHER="torchrun --nproc_per_node 8"
srun --label bash -c 'torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 --node_rank $SLURM_PROCID --master_addr $MASTER_ADDR -m pkg.train --config conf.yaml'
