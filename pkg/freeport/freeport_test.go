package freeport_test

import (
	"net"
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/freeport"
)

// Each port is free, none comes twice, and none is one that the kernel gives to connections.
func TestFind(t *testing.T) {
	ports, err := freeport.Find(200)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ports)
	if distinct := len(slices.Compact(slices.Clone(ports))); distinct != 200 {
		t.Errorf("%d ports, want 200", distinct)
	}
	if ports[0] < 1024 || ports[len(ports)-1] >= 32768 {
		t.Errorf("ports from %d to %d: some are the system's or connections'", ports[0], ports[len(ports)-1])
	}
	for _, port := range ports {
		l, err := net.Listen("tcp", freeport.Address(port))
		if err != nil {
			t.Error(err)
			continue
		}
		_ = l.Close()
	}
}
