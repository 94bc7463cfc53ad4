#!/bin/bash
#SBATCH -A m1234_g
#SBATCH -C "gpu&hbm80g"
#SBATCH -q regular
#SBATCH -t 04:00:00
#SBATCH -N 4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4   # four A100
#SBATCH -c 128
#SBATCH -J resnet50
#SBATCH -o logs/%x-%j.out

module load pytorch/2.3.1
export HF_HOME=$SCRATCH/hf
export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / 4))
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export MASTER_PORT=29500

echo "Nodes: $SLURM_JOB_NODELIST"
srun torchrun \
    --nnodes=$SLURM_NNODES \
    --nproc_per_node=4 \
    --rdzv_id=$SLURM_JOB_ID --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT \
    train.py --epochs 90 --batch-size 256
