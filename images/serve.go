package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nstance/nstance/images/registry"
	"github.com/nstance/nstance/images/release"
)

// keys is the folder of the keys for trying things out.
func (s settings) keys() string { return filepath.Join(s.work, "keys") }

// holds reports whether our own registry is where a release was pushed to.
func (s settings) holds(built release.Release) bool {
	for _, image := range built.Images {
		if strings.HasPrefix(image.Reference, s.address+"/") {
			return true
		}
	}
	return false
}

// whileServing does something with our own registry up, if that is wanted and it is
// not up already.
func (s settings) whileServing(ctx context.Context, wanted bool, do func() error) error {
	if !wanted {
		return do()
	}
	err := s.serving(ctx, do)
	if errors.Is(err, errTaken) && s.isOurs(ctx) {
		return do()
	}
	return err
}

// errTaken is for an address at which another program listens.
var errTaken = errors.New("another program listens there")

// serving does something while our own registry is served from here.
func (s settings) serving(ctx context.Context, do func() error) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("serve our own registry on %s (--address): %w", s.address, errTaken)
	}
	if err != nil {
		return fmt.Errorf("serve our own registry (--address): %w", err)
	}
	defer listener.Close()
	held, err := registry.Open(ctx, filepath.Join(s.work, "registry"))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: held, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // it ends with the listener
	defer func() { _ = server.Close() }()      // what it served is on disk
	return do()
}

// isOurs reports whether what listens at the address is our own registry, with the same
// folder: what another one is given is not in ours.
func (s settings) isOurs(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/v2/", http.NoBody)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	folder, err := filepath.Abs(filepath.Join(s.work, "registry"))
	return err == nil && answer.Header.Get(registry.FolderHeader) == folder
}
