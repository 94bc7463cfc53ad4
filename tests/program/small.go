package program

// Small is the end of a job file: a small training that saves often. It takes the number
// of epochs, which have [SmallSteps] steps on two ranks.
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

// SmallSteps are the steps of an epoch of [Small] on two ranks.
const SmallSteps = 29
