/* loader.h: the result of loading the driver in loader.c. */
#ifndef DDPBATCH_LOADER_H
#define DDPBATCH_LOADER_H
#include <cuda.h>

enum {
	DDPB_READY = 0,
	DDPB_NO_LIBRARY = 1, /* dlopen failed; the error is in why */
	DDPB_NO_DRIVER = 2,  /* the library has no cuInit */
	DDPB_INIT_FAILED = 3 /* cuInit returned result */
};

struct ddpb_driver {
	int state;
	CUresult result; /* result of every function, unless DDPB_READY */
	int version;     /* CUDA version that the driver supports: 12080 is 12.8; 0 if unknown */
	char why[512];
};

/* Loads the driver once. */
const struct ddpb_driver *ddpb_driver(void);

#endif
