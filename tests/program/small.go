package program

// Small is the [train] table of a small run that saves often. Its argument is the number of
// epochs. An epoch has [SmallSteps] steps on two ranks.
const Small = `[train]
epochs = %d
batch = 64
log_every = "10 steps"
[train.model]
kind = "mlp"
hidden = [32]
[train.data]
kind = "idx"
path = "builtin:fashion-mnist"
[train.optimizer]
kind = "sgd"
lr = 0.05
[checkpoint]
every = "50 steps"
`

// SmallSteps is the number of steps per epoch of [Small] on two ranks.
const SmallSteps = 29
