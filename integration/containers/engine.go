//go:build integration

// Package containers has what the stories on a container engine share: the engine, a story's part
// of it, and images, networks and servers there.
//
// All that a story creates has its label, and what the docker provider creates for it has its
// cluster's id; both are removed before a story begins and after it ended, so even a killed one
// leaves nothing behind for long. Nothing else on the engine is touched: other users may use it at
// the same time.
package containers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// Want is an environment variable. Set to 1, stories fail where they would be skipped for lack of
// an engine or an image; set to 0, all are skipped.
const Want = "ENGINE"

// Engine is the container engine of all stories of a package. Its zero value is ready; it connects
// when the first story begins.
type Engine struct {
	find sync.Once
	api  *client.Client
	err  error
}

// need returns the engine's API. Without an engine it skips or fails the test.
func (e *Engine) need(t *testing.T) *client.Client {
	t.Helper()
	if os.Getenv(Want) == "0" {
		t.Skipf("SKIPPED: stories on a container engine: %s=0", Want)
	}
	e.find.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if e.api, e.err = connect(ctx); e.err == nil {
			e.err = withoutReaper(ctx, e.api)
		}
	})
	if e.err != nil {
		miss(t, "no container engine answers: %v", e.err)
	}
	if host := e.api.DaemonHost(); runtime.GOOS != "linux" || !strings.HasPrefix(host, "unix://") {
		miss(t, "the engine at %s is not this machine's own: stories reach containers at their addresses", host)
	}
	return e.api
}

// miss ends a test for which the machine lacks something: it is skipped, with the reason, or fails
// if Want is 1.
func miss(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv(Want) == "1" {
		t.Fatalf(format+" (%s=1)", append(args, Want)...)
	}
	t.Skipf("SKIPPED: "+format, args...)
}

func connect(ctx context.Context) (*client.Client, error) {
	api, err := client.New(client.FromEnv)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err = api.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	return api, err
}

// withoutReaper turns testcontainers' reaper off if its image is not available. The reaper removes
// the containers of a killed test; without it the sweep at the next start does. Such machines may
// have no IPv6 on loopback, which "localhost" may resolve to, so the engine's ports are dialled on
// 127.0.0.1. It is called before testcontainers first reads these variables.
func withoutReaper(ctx context.Context, api *client.Client) error {
	const disabled, host = "TESTCONTAINERS_RYUK_DISABLED", "TESTCONTAINERS_HOST_OVERRIDE"
	if os.Getenv(disabled) != "" {
		return nil // already decided
	}
	//nolint:staticcheck // the name is deprecated only for having been set
	image := testcontainers.ReaperDefaultImage
	if _, err := api.ImageInspect(ctx, image); err == nil {
		return nil
	}
	if pull(ctx, api, image, reaperWithin) == nil {
		return nil
	}
	err := os.Setenv(disabled, "true")
	if _, set := os.LookupEnv(host); !set && api.DaemonHost() == client.DefaultDockerHost {
		err = errors.Join(err, os.Setenv(host, "127.0.0.1"))
	}
	return err
}

const (
	// reaperWithin is short: some machines notice late that a registry is unreachable.
	reaperWithin = 20 * time.Second
	pullWithin   = 5 * time.Minute
)

// pull makes the engine pull an image, within a time limit.
func pull(ctx context.Context, api *client.Client, reference string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	pulling, err := api.ImagePull(ctx, reference, client.ImagePullOptions{})
	if err != nil {
		return fmt.Errorf("pull %s: %w", reference, err)
	}
	defer pulling.Close()
	if err := pulling.Wait(ctx); err != nil {
		return fmt.Errorf("pull %s: %w", reference, err)
	}
	return nil
}
