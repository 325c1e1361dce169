package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/election"
	"golang.org/x/sync/errgroup"
)

// playHour runs two electors with default timing for an hour of simulated time, and reports the
// standby's requests to the store. Package testing provides simulated time, and runs tests only in
// a process of their own.
func playHour(ctx context.Context, s *stage) error {
	hour := func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			// A signal can't be received within simulated time.
			requests, err := standbyHour(context.WithoutCancel(ctx))
			if err != nil {
				t.Fatal(err)
			}
			s.tell(event{Kind: "hour", Value: float64(requests)})
		})
	}
	os.Args = os.Args[:1] // package testing does not know the role's flag
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "hour", F: hour}}, nil, nil)
	return nil // not reached: Main ends the process
}

// standbyHour counts a standby's requests in an hour, after a minute to settle.
func standbyHour(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	store := mem.New(mem.Config{Latency: storeLatency})
	counted := objecttest.NewCounting(store)
	link := &memoryLink{handlers: map[string]http.Handler{}}
	leader, err := link.elector(store, "a")
	if err != nil {
		return 0, err
	}
	standby, err := link.elector(counted, "b")
	if err != nil {
		return 0, err
	}
	wait := func(ctx context.Context, _ *election.Term) error { <-ctx.Done(); return nil }
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return leader.Run(ctx, wait) })
	time.Sleep(10 * time.Second)
	work.Go(func() error { return standby.Run(ctx, wait) })
	time.Sleep(time.Minute)
	before := counted.Counts()
	time.Sleep(time.Hour)
	total := counted.Counts().Sub(before).Total()
	if record, known := standby.Leader(); !known || record.Holder != "a" {
		return 0, errors.New("the standby lost its leader in a simulated hour")
	}
	cancel()
	return total, work.Wait()
}

// memoryLink connects electors without a network, whose waits would block simulated time.
type memoryLink struct{ handlers map[string]http.Handler }

func (l *memoryLink) elector(store object.Store, name string) (*election.Elector, error) {
	e, err := election.New(election.Config{
		Store: store, Key: "leader/" + shardID + ".json", Holder: name,
		Addrs: election.Addrs{Election: name + ":1", Registration: name + ":2", Operator: name + ":3", Agent: name + ":4"},
		Timing: election.Timing{
			RenewInterval: 10 * time.Second, LeaseDuration: 30 * time.Second, FenceWindow: time.Second, GiveUp: 30 * time.Second,
		},
		FirstEpoch: func(context.Context) (uint64, error) { return 1, nil },
		Peers:      l, Jitter: func(most time.Duration) time.Duration { return rand.N(most) },
	})
	if err != nil {
		return nil, fmt.Errorf("make elector %s: %w", name, err)
	}
	l.handlers[name+":1"] = e.Handler()
	return e, nil
}

// Dial implements election.Dialer.
func (l *memoryLink) Dial(ctx context.Context, addr string) (election.Stream, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+election.LeaderPath, http.NoBody)
	if err != nil {
		return nil, err
	}
	s := &memoryStream{lines: make(chan []byte, 64)}
	go func() {
		defer close(s.lines)
		l.handlers[addr].ServeHTTP(s, req)
	}()
	return s, nil
}

// Answer implements election.Dialer.
func (l *memoryLink) Answer(_ context.Context, addr string, _ election.Answer) error {
	return fmt.Errorf("answer %s: a leader with nothing to do asks no other server", addr)
}

// memoryStream is both ends of a reply: each write is a line.
type memoryStream struct{ lines chan []byte }

// Header implements http.ResponseWriter.
func (s *memoryStream) Header() http.Header { return http.Header{} }

// WriteHeader implements http.ResponseWriter.
func (s *memoryStream) WriteHeader(int) {}

// Write implements http.ResponseWriter.
func (s *memoryStream) Write(p []byte) (int, error) {
	s.lines <- bytes.Clone(p)
	return len(p), nil
}

// Flush implements http.Flusher.
func (s *memoryStream) Flush() {}

// Next implements election.Stream.
func (s *memoryStream) Next() (election.Line, error) {
	line, ok := <-s.lines
	if !ok {
		return election.Line{}, fmt.Errorf("%w: %w", election.ErrClosed, io.EOF)
	}
	return election.ParseLine(line)
}

// Close implements election.Stream. The end of Dial's context ends the writer.
func (s *memoryStream) Close() error { return nil }
