package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

const (
	coldStartRecords = 10_000
	coldStarts       = 3
)

// measureColdStart starts a server on 10,000 records, without a cache and then with one, on dev-s3
// in a process of its own.
func measureColdStart(ctx context.Context, b *bench) ([]figure, error) {
	s3, endpoint, err := b.devS3(ctx, "coldstart", shard{Size: coldStartRecords})
	if err != nil {
		return nil, err
	}
	defer s3.stop(5 * time.Second)
	var cold, warm spread
	var cache string
	for range coldStarts {
		if cache, err = b.folder("cache"); err != nil {
			return nil, err
		}
		took, err := b.healthyAfter(ctx, endpoint, cache, "coldstart")
		if err != nil {
			return nil, err
		}
		cold = append(cold, took)
	}
	for range coldStarts {
		took, err := b.healthyAfter(ctx, endpoint, cache, "warmstart")
		if err != nil {
			return nil, err
		}
		warm = append(warm, took)
	}
	cf := newFigure("coldstart_10000", cold.at(1).Seconds(), "s", coldStarts).atMost(3).
		noted("slowest; median %.2f s", cold.median().Seconds())
	wf := newFigure("warmstart_10000", warm.at(1).Seconds(), "s", coldStarts).atMost(1).
		noted("slowest; median %.2f s", warm.median().Seconds())
	b.judge(ctx, "coldstart", []figure{cf})
	b.judge(ctx, "warmstart", []figure{wf})
	return []figure{cf, wf}, nil
}

// devS3 fills a folder with a shard's objects and serves it as a bucket.
func (b *bench) devS3(ctx context.Context, name string, s shard) (*child, string, error) {
	root, err := b.folder(name + "-bucket")
	if err != nil {
		return nil, "", err
	}
	all, err := s.records(fleet.Running, time.Now())
	if err != nil {
		return nil, "", err
	}
	objects, err := s.objects(all)
	if err != nil {
		return nil, "", err
	}
	for key, body := range objects {
		path := filepath.Join(root, filepath.FromSlash(key))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, "", err
		}
		if err := os.WriteFile(path, body, 0o600); err != nil {
			return nil, "", err
		}
	}
	addr, err := freePort(ctx)
	if err != nil {
		return nil, "", err
	}
	c, err := b.start(ctx, "s3", name+"-s3", s3Settings{Addr: addr, Root: root})
	if err != nil {
		return nil, "", err
	}
	endpoint := "http://" + addr
	err = until(ctx, "dev-s3 answers", 10*time.Second, func() bool { return answers(ctx, endpoint+"/", 0) })
	return c, endpoint, err
}

// healthyAfter starts a server process and returns the time until /health answers 200.
func (b *bench) healthyAfter(ctx context.Context, endpoint, cache, name string) (time.Duration, error) {
	addrs, err := freeEndpoints(ctx)
	if err != nil {
		return 0, err
	}
	c, err := b.start(ctx, "server", name, serverSettings{
		ID: name, CacheDir: cache, Addrs: addrs, Endpoint: endpoint, Dir: b.temp, Profile: name,
	})
	if err != nil {
		return 0, err
	}
	defer c.stop(15 * time.Second)
	// Creating the fake provider's VMs from the records is no part of a server's start.
	prepared, err := c.await(ctx, "prepared", time.Time{}, time.Minute)
	if err != nil {
		return 0, err
	}
	err = until(ctx, "/health answers 200", time.Minute, func() bool { return answers(ctx, "http://"+addrs.Health+"/health", http.StatusOK) })
	if err != nil {
		return 0, fmt.Errorf("%w:\n%s", err, c.lastWords())
	}
	took := time.Since(prepared.At)
	if _, err := c.ask(ctx, "profiled", 10*time.Second); err != nil {
		return 0, err
	}
	// A cache is complete once it has all records of the start.
	_, err = c.await(ctx, "took over", time.Time{}, time.Minute)
	return took, err
}

// answers reports whether a GET gets a status; 0: any.
func answers(ctx context.Context, url string, status int) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	res.Body.Close()
	return status == 0 || res.StatusCode == status
}
