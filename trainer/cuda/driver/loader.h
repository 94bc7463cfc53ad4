/* loader.h: what loader.c found when it loaded the driver. */
#ifndef DDPBATCH_LOADER_H
#define DDPBATCH_LOADER_H
#include <cuda.h>

enum {
	DDPB_READY = 0,
	DDPB_NO_LIBRARY = 1, /* dlopen failed; why says how */
	DDPB_NO_DRIVER = 2,  /* the library has no cuInit */
	DDPB_INIT_FAILED = 3 /* cuInit returned result */
};

struct ddpb_driver {
	int state;
	CUresult result; /* of every function, unless DDPB_READY */
	int version;     /* of CUDA that the driver supports: 12080 is 12.8; 0: not known */
	char why[512];
};

/* Loads the driver, once. */
const struct ddpb_driver *ddpb_driver(void);

#endif
