#!/bin/bash
#SBATCH --job-name=mpi_app
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=36
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=2G
#SBATCH --mail-type=END,FAIL
#SBATCH --mail-user=ada@example.org
#SBATCH --exclusive
module load gcc/10.2.0 openmpi/4.1.6
ulimit -s unlimited
mpirun -np $SLURM_NTASKS --bind-to core -x OMP_NUM_THREADS ./solver input.nml > solver.log 2>&1
