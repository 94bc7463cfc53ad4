package symptoms

import (
	"regexp"
	"slices"
)

// known makes a row of the table.
func known(r rank, name, from, pattern, sample, cause, hint string) Symptom {
	return Symptom{Name: name, From: from, Cause: cause, Hint: hint, rank: r, pattern: regexp.MustCompile(pattern), words: words(pattern), sample: sample}
}

// table are the symptoms; of several that a line has, the first counts.
var table = slices.Concat(machine, slurmTexts, cudaTexts, ncclTexts, glooTexts, torchTexts, mpiTexts, late)

// machine are texts of the kernel, the C library and file systems.
var machine = []Symptom{
	known(cause, "out of memory", "Slurm or the kernel", `(?i)oom[-_ ]kill|oom_kill event|Out of memory: Killed process|Detected \d+ oom`,
		"slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step tasks have been OOM Killed.",
		"the job used more of the host's memory than it had asked for, and the kernel killed a process",
		"ask for more with slurm.mem, use fewer data-loader workers, or smaller batches; `ddpbatch plan` says what the built-in trainer takes"),
	known(cause, "bus error", "the kernel", `(?i)Bus error|SIGBUS|Unexpected bus error encountered in worker`,
		"ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
		"/dev/shm is full, or a file that was mapped into memory has become shorter",
		"`ddpbatch doctor` on the node says how much /dev/shm has; give containers more (--ipc=host), remove what dead jobs have left there, or use fewer workers"),
	known(cause, "disk full", "the file system", `(?i)No space left on device|Disk quota exceeded|ENOSPC|EDQUOT`,
		"OSError: [Errno 28] No space left on device",
		"a file system is full, or a quota exceeded: of the run directory, /tmp or /dev/shm",
		"df and the site's quota command say which; remove old checkpoints, or set checkpoint.keep"),
	known(cause, "too many open files", "the C library", `(?i)Too many open files`,
		"OSError: [Errno 24] Too many open files",
		"the limit of open files is reached: data loaders and connections to other ranks use many",
		"ulimit -n 65536 in [setup] lines; torch.multiprocessing.set_sharing_strategy(\"file_system\")"),
	known(cause, "no more threads", "the C library", `(?i)pthread_create failed|Resource temporarily unavailable.*(thread|fork)|can't start new thread|fork: retry`,
		"OpenBLAS blas_thread_init: pthread_create failed for thread 63 of 64: Resource temporarily unavailable",
		"the limit of processes and threads is reached",
		"set OMP_NUM_THREADS and OPENBLAS_NUM_THREADS to slurm.cpus_per_task, use fewer workers, or raise ulimit -u"),
	known(cause, "program for another system", "the loader", `version .GLIBC(XX)?_[\d.]+' not found|Exec format error`,
		"python3: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by libfoo.so)",
		"a program or library was built for a newer system, or another architecture, than the node has",
		"build it on a node of the same kind, or use the site's modules or a container"),
	known(likely, "illegal instruction", "the kernel", `(?i)Illegal instruction|SIGILL`,
		"Illegal instruction (core dumped)",
		"a program was built for a processor that has more than this one",
		"build it on the oldest kind of node, or ask for nodes of one kind with slurm.constraint"),
	known(likely, "file system gone", "the file system", `(?i)Stale file handle|Transport endpoint is not connected|Input/output error`,
		"OSError: [Errno 116] Stale file handle: '/scratch/run/data.bin'",
		"the file system had trouble, or a file was replaced on another node while it was read",
		"start again; if it comes again on one node, leave that out (--exclude) and tell the centre"),
}

// slurmTexts are texts of Slurm's programs and daemons.
var slurmTexts = []Symptom{
	known(cause, "time limit", "Slurm", `CANCELLED AT .* DUE TO TIME LIMIT|DUE TO TIME LIMIT`,
		"slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
		"the job reached its time limit",
		"ddpbatch saves slurm.signal_before_end before it: submit again to go on, or set [restart] requeue; else ask for more time"),
	known(cause, "preempted", "Slurm", `DUE TO PREEMPTION`,
		"slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***",
		"Slurm gave the nodes to a job of higher priority",
		"set [restart] requeue, and save often enough; see PreemptMode in `ddpbatch doctor`"),
	known(cause, "node failed", "Slurm", `DUE TO NODE FAILURE|NODE_FAIL|Node failure on|DUE TO JOB NOT ENDING`,
		"slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
		"a node stopped answering: it crashed, rebooted, or lost its network",
		"submit again, without that node (--exclude); restart.spare_nodes has a run go on by itself"),
	known(cause, "more than there is", "Slurm", `Requested node configuration is not available|More processors requested than permitted|Unable to create step.*(not available|Invalid)`,
		"srun: error: Unable to create step for job 123: More processors requested than permitted",
		"the step asks for more than the job has, or the job for more than a node has",
		"compare tasks_per_node, cpus_per_task and gpus_per_node with `scontrol show node`; `ddpbatch submit --test-only`"),
	known(cause, "wrong account or partition", "Slurm", `Invalid account or account/partition combination|invalid partition specified|Invalid qos specification`,
		"sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
		"Slurm does not take this account, partition or quality of service from this user",
		"`sacctmgr show assoc user=$USER` lists yours; set slurm.account, partition and qos"),
	known(cause, "log folder missing", "Slurm", `Could not open stdout file|could not open batch script output`,
		"slurmstepd: error: Could not open stdout file /home/ada/logs/out: No such file or directory",
		"the folder of the job's output is not there, or cannot be written by the node",
		"make it before submitting, on a file system that the nodes see"),
	known(cause, "work folder missing", "Slurm", `couldn't chdir to .*: going to /tmp instead`,
		"slurmstepd: error: couldn't chdir to `/home/ada/job': No such file or directory: going to /tmp instead",
		"the node does not see the folder from which the job was submitted",
		"submit from a folder on the shared file system"),
	known(cause, "program not found", "srun", `execve\(\): .*: (No such file or directory|Permission denied)|error: execve`,
		"slurmstepd: error: execve(): python3: No such file or directory",
		"the node has no such program: a module is not loaded, or its folder is not seen there",
		"set [setup] modules, venv or conda; `srun which PROGRAM` on the node"),
	known(cause, "MPI of another kind", "srun or MPI", `Couldn't find the specified plugin name for mpi/|PMI2_Init failed|was not built with (SLURM|Slurm)('s)? PMI|OPAL ERROR: Unreachable in file .*pmix|not built with SLURM support`,
		"The application appears to have been direct launched using \"srun\", but OMPI was not built with SLURM's PMI support and therefore cannot execute.",
		"the program's MPI and srun's --mpi do not know each other",
		"`srun --mpi=list` shows what there is: slurm.mpi = \"pmix\" for Open MPI, \"pmi2\" for MPICH; or load the site's MPI module"),
	known(likely, "credential", "Slurm", `Munge decode failed|Job credential expired|Invalid job credential|Expired credential`,
		"slurmd: error: Munge decode failed: Expired credential",
		"a node's clock is wrong, or its munge key is another one",
		"`ddpbatch doctor --in-job` compares clocks; tell the centre which node"),
	known(likely, "controller silent", "Slurm", `Unable to contact slurm controller|Socket timed out on send/recv operation|Slurm controller not responding`,
		"squeue: error: slurm_receive_msgs: Socket timed out on send/recv operation",
		"the controller did not answer in time: it is busy, or away",
		"wait, and ask less often; a submission may have been taken all the same (squeue --me)"),
}

// cudaTexts are texts of CUDA and the NVIDIA driver.
var cudaTexts = []Symptom{
	known(cause, "gpu out of memory", "CUDA", `(?i)CUDA out of memory|OutOfMemoryError: CUDA|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED`,
		"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total capacity)",
		"the GPU's memory does not hold the model, its gradients and a batch; or another process is on it",
		"a smaller batch with train.accumulate, bf16, zero2 or zero3; nvidia-smi shows who else is there"),
	known(cause, "gpu has failed", "the NVIDIA driver", `NVRM: Xid|GPU has fallen off the bus|Unable to determine the device handle|uncorrectable ECC|CUDA_ERROR_ECC_UNCORRECTABLE`,
		"NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
		"the GPU, its memory or its link has failed",
		"leave the node out (--exclude) and tell the centre with the Xid and the node's name"),
	known(cause, "no kernel for this gpu", "CUDA", `no kernel image is available for execution|CUDA_ERROR_NO_BINARY_FOR_GPU|invalid device function|is not compatible with the current PyTorch installation`,
		"RuntimeError: CUDA error: no kernel image is available for execution on the device",
		"the program was built for GPUs of another compute capability",
		"install a build of PyTorch for this GPU's capability and the driver's CUDA (`ddpbatch doctor` says both)"),
	known(cause, "driver too old", "CUDA", `CUDA driver version is insufficient|CUDA_ERROR_INSUFFICIENT_DRIVER|NVIDIA driver on your system is too old|provided PTX was compiled with an unsupported toolchain`,
		"RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
		"the driver is older than the CUDA that the program was built with",
		"a build for an older CUDA (`ddpbatch doctor` says which the driver knows), or a node with a newer driver"),
	known(cause, "no gpu", "CUDA", `no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE|No CUDA GPUs are available|Torch not compiled with CUDA enabled`,
		"RuntimeError: No CUDA GPUs are available",
		"the job has no GPU, the variable CUDA_VISIBLE_DEVICES hides it, or the program was built without CUDA",
		"set slurm.gpus_per_node; `srun ddpbatch doctor` says what a rank sees"),
	known(cause, "wrong gpu number", "CUDA", `invalid device ordinal|CUDA_ERROR_INVALID_DEVICE`,
		"RuntimeError: CUDA error: invalid device ordinal",
		"a rank takes a GPU by its local rank, and Slurm shows it fewer: each task sees only its own as number 0",
		"ddpbatch numbers them by what a rank sees; in scripts of your own use --gpu-bind=none, or device 0 where one is seen"),
	known(likely, "bad memory access on the gpu", "CUDA", `illegal memory access|CUDA_ERROR_ILLEGAL_ADDRESS|device-side assert triggered|misaligned address`,
		"RuntimeError: CUDA error: device-side assert triggered",
		"a kernel read what is not there: often a label or token number outside of its range",
		"run once with CUDA_LAUNCH_BLOCKING=1 to see which call; check labels against the number of classes"),
}

// late are what programs that start others say in the end.
var late = []Symptom{
	known(aftermath, "srun ended the step", "srun", `srun: error: .*(Exited with exit code|Killed|Terminated|Segmentation fault|Aborted)|STEP .* CANCELLED AT|Job step aborted: Waiting up to`,
		"srun: error: n1: task 3: Exited with exit code 1",
		"a task ended with an error, or the step was ended because of one",
		"the reason is in what that task printed before: the lines above of the first one that ended"),
	known(aftermath, "cancelled", "Slurm", `\*\*\* JOB \d+ .*CANCELLED AT|force-terminat`,
		"slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***",
		"somebody cancelled the job, or a program that watches it did",
		"sacct -j JOB -o State%40 says by which user"),
	known(likely, "python module missing", "Python", `ModuleNotFoundError: No module named|ImportError: .*cannot open shared object file`,
		"ModuleNotFoundError: No module named 'torch'",
		"the environment on the node is not that in which the program works",
		"set [setup] venv, conda or modules; compare `srun which python3` with the login node's"),
	known(likely, "segmentation fault", "the kernel", `(?i)Segmentation fault|SIGSEGV|exited on signal 11`,
		"[n1:1234] *** Process received signal *** Signal: Segmentation fault (11)",
		"a native library crashed",
		"the stack below it names the library; versions of CUDA, NCCL and MPI that do not match are a usual cause (`ddpbatch doctor --in-job`)"),
	known(likely, "not finite", "the training", `(?i)loss (is|was|became) (nan|inf)|contains (nan|inf)|non-?finite (loss|gradient)|the loss is not finite`,
		"ValueError: loss is nan at step 812",
		"the training diverged, or a sample is broken",
		"a lower learning rate, warm-up, clip_norm; train.nonfinite = \"skip\" leaves single steps out"),
}
