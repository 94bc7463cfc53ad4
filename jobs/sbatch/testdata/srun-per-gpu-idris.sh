#!/bin/bash
#SBATCH --job-name=multi_gpu_srun     # nom du job
#SBATCH --nodes=2
#SBATCH --ntasks=8                    # nombre total de taches
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=10
#SBATCH --hint=nomultithread
#SBATCH --time=00:10:00
#SBATCH --output=gpu_srun%j.out
#SBATCH --error=gpu_srun%j.out
cd ${SLURM_SUBMIT_DIR}
module purge
module load pytorch-gpu/py3/2.1.1
set -x
srun python -u script.py --lr 0.1
