#!/bin/bash -l
#SBATCH --account=project_465000123
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --mem=480G
#SBATCH --time=1-00:00:00

module purge
module use /appl/local/training/modules/AI-20240529/
module load LUMI/23.09 singularity-userfilesystems
CONTAINER=/appl/local/containers/sif-images/lumi-pytorch-rocm-6.0.3.sif
export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
export MIOPEN_USER_DB_PATH=/tmp/cache
srun --cpu-bind=v,mask_cpu:0xfe000000000000 singularity exec -B /scratch,/project:/project --rocm $CONTAINER bash -c "\$WITH_CONDA; export RANK=\$SLURM_PROCID; python -u train.py --data /scratch/data"
