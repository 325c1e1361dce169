package admin

import "errors"

// ErrNoGroup means that no shard asked has a group of that name.
var ErrNoGroup = errors.New("no such group")

// ErrInvalidConfig means that a shard refused the config in the bucket and keeps the previous
// one.
var ErrInvalidConfig = errors.New("invalid config; the previous one stays active")

// ErrAwaitsConfirmation means that the config in the bucket takes away groups that have instances, or no longer sets their size,
// and that the shard keeps the previous config until that is confirmed.
var ErrAwaitsConfirmation = errors.New("the config removes groups that have instances; the previous one stays active until accepted")

// ErrNoIdentity means that a folder holds no identity.
var ErrNoIdentity = errors.New("no identity")
