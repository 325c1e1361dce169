package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/nstance/nstance/pkg/server"
)

// encryptionKey seals the secrets of a temporary cluster.
const encryptionKey = "Vb2kQ9wZ7mXcT4rLh8NsJ1pDfYgU5aEo"

// node is one server in this process.
type node struct {
	ID       string
	Shard    string // empty: shardID
	Store    object.Store
	Provider provider.Provider
	CacheDir string
	Addrs    server.Endpoints
	Logger   *slog.Logger
}

// run serves until ctx ends.
func (n node) run(ctx context.Context) error {
	return server.Run(ctx, server.Config{
		Shard: cmp.Or(n.Shard, shardID), ID: n.ID, CacheDir: n.CacheDir, AdvertiseHost: loopback, Bind: n.Addrs, Version: "bench",
		Store:        n.Store,
		OpenProvider: func(server.Opening) (provider.Provider, error) { return n.Provider, nil },
		Getenv:       getenv, Now: time.Now, Random: rand.Reader, Logger: n.Logger,
	})
}

// start runs the node in the background. stop ends it and returns its error.
func (n node) start(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- n.run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// getenv is the environment of a node, which has only the key.
func getenv(name string) string {
	if name == encryptionKeyEnv {
		return encryptionKey
	}
	return ""
}

// trust creates or opens the cluster's CA and keys, as a server does.
func trust(ctx context.Context, store object.Store) (secrets.Trust, error) {
	sealed, err := openSecrets(ctx, store)
	if err != nil {
		return secrets.Trust{}, err
	}
	return secrets.Bootstrap(ctx, secrets.BootstrapConfig{
		ClusterID: clusterID, Store: store, Secrets: sealed, Now: time.Now, Random: rand.Reader,
	})
}

func openSecrets(ctx context.Context, store object.Store) (secrets.Secrets, error) {
	return secrets.Open(ctx, secrets.Config{
		Provider: secrets.ProviderObjectStorage, Prefix: "cluster/secret/",
		Key:   secrets.KeySource{Provider: secrets.KeyFromEnv, Source: encryptionKeyEnv},
		Store: store, Random: rand.Reader, Sources: secrets.LocalSources(getenv),
	})
}

const loopback = "127.0.0.1"

// freeEndpoints returns ports that are unused at this moment.
func freeEndpoints(ctx context.Context) (server.Endpoints, error) {
	var e server.Endpoints
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	for _, to := range []*string{&e.Health, &e.Election, &e.Registration, &e.Operator, &e.Agent} {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", loopback+":0")
		if err != nil {
			return e, fmt.Errorf("find a free port: %w", err)
		}
		held = append(held, l)
		*to = l.Addr().String()
	}
	return e, nil
}

func freePort(ctx context.Context) (string, error) {
	e, err := freeEndpoints(ctx)
	return e.Health, err
}

// errTooLate is the error of a wait that timed out.
var errTooLate = errors.New("waited in vain")

// until polls ok every few milliseconds, for patience at most.
func until(ctx context.Context, what string, patience time.Duration, ok func() bool) error {
	late := fmt.Errorf("%w for %s", errTooLate, patience)
	ctx, cancel := context.WithTimeoutCause(ctx, patience, late)
	defer cancel()
	for !ok() {
		if retry.Wait(ctx, 2*time.Millisecond) != nil {
			return fmt.Errorf("%w until: %s", context.Cause(ctx), what)
		}
	}
	return nil
}
