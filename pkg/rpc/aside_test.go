package rpc_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/rpc"
)

func TestAside(t *testing.T) {
	failure := errors.New("a failure")
	if err := rpc.Aside(func() error { return failure }); !errors.Is(err, failure) {
		t.Errorf("%v, want what the function returned", err)
	}
	var none []int
	err := rpc.Aside(func() error { none[len(none)]++; return nil })
	if err == nil || !strings.Contains(err.Error(), "index out of range") || !strings.Contains(err.Error(), "aside_test.go") {
		t.Errorf("%v, want the panic and its place", err)
	}
}
