package admin

import "errors"

// ErrNoGroup means that no shard asked has a group of that name.
var ErrNoGroup = errors.New("no such group")

// ErrInvalidConfig means that a shard refused the config in the bucket, and goes
// on with the one that it runs.
var ErrInvalidConfig = errors.New("the config is not valid: the one before goes on to run")

// ErrAwaitsConfirmation means that the config in the bucket takes away groups that have
// instances, and that a shard goes on with the one that it runs until that is accepted.
var ErrAwaitsConfirmation = errors.New("the config takes away groups that have instances; the previous one runs until that is accepted")

// ErrNoIdentity means that a folder holds no identity.
var ErrNoIdentity = errors.New("no identity")
