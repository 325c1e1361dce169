// Package freeport finds free ports for server processes started by tests.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Host is the address on which the ports are free.
const Host = "127.0.0.1"

// first and count define a range below the kernel's ephemeral ports: otherwise an outgoing
// connection could take a port before its server binds it.
const first, count = 20000, 12000

// Find returns n distinct ports of Host that were just free.
func Find(n int) (ports []int, err error) {
	for range 100 * n {
		port := first + rand.IntN(count)
		l, listenErr := net.Listen("tcp", Address(port)) //nolint:noctx // at once
		if listenErr != nil {
			err = listenErr
			continue
		}
		defer l.Close() // held until the end, so that the ports are distinct
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no free port: %w", err)
}

// Address returns Host and a port as an address.
func Address(port int) string { return net.JoinHostPort(Host, strconv.Itoa(port)) }
