//go:build roles

package main

import (
	"context"
	"errors"
)

// errRoles is the error of the parts that a binary built for roles leaves out.
var errRoles = errors.New("this binary was built without Kubernetes, to play roles")

func measureKubernetes(context.Context, *bench) ([]figure, error) { return nil, errRoles }

func playOperator(context.Context, *stage) error { return errRoles }
