#!/bin/bash
#SBATCH --job-name="ddp apptainer"
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-task=1
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
export TOKENIZERS_PARALLELISM=false
srun --mpi=pmix --container-writable apptainer exec --nv --bind /scratch:/data /images/pt.sif python3 /app/train.py
