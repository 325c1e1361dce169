package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// silent opens connections from an address that send nothing until the test ends.
func (s *site) silent(n int, source, addr string) (conns []net.Conn) {
	s.t.Helper()
	for range n {
		conn, err := s.connectFrom(s.t.Context(), source, addr)
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { conn.Close() })
		conns = append(conns, conn)
	}
	return conns
}

// TestLargeHello: no port reads 64 KiB of a handshake from a stranger.
func TestLargeHello(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start().awaitLeading()
		for name, addr := range map[string]string{
			"election": p.addr("serving", "election"), "registration": p.registrationAddr(), "operator": p.operatorAddr(), "agent": p.agentAddr(),
		} {
			conn := s.silent(1, loopback, addr)[0]
			// The header of a ClientHello of 65,532 bytes, and half of them in two records.
			_, _ = conn.Write([]byte{22, 3, 1, 64, 0, 1, 0, 255, 252, 3, 3})
			_, _ = conn.Write(make([]byte, 1<<14-6))
			_, _ = conn.Write([]byte{22, 3, 1, 64, 0})
			_, _ = conn.Write(make([]byte, 1<<14))
			_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			_, err := io.Copy(io.Discard, conn)
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				t.Errorf("%s: the server waits for the rest of it", name)
			}
		}
	})
}

// TestHalfOpen: connections that never start a handshake do not block calls, and all but a
// source's share of them is closed within 5 s.
func TestHalfOpen(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start().awaitLeading()
		began := time.Now()
		flood := s.silent(300, "127.0.0.2", p.operatorAddr())
		if _, err := p.operator("default").ListGroups(within(t), &nstancev1.ListGroupsRequest{}); err != nil {
			t.Errorf("a call meanwhile: %v", err)
		}
		eventually(t, "32 of 300 connections are left", func() error {
			left := 0
			for _, conn := range flood {
				_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
				_, err := conn.Read(make([]byte, 1))
				var timeout net.Error
				if errors.As(err, &timeout) && timeout.Timeout() {
					left++
				}
			}
			if left > 32 {
				return fmt.Errorf("%d are left", left)
			}
			return nil
		})
		if took := time.Since(began); took > 5500*time.Millisecond { // at 10 s every handshake is over
			t.Errorf("that took %s", took)
		}
	})
}

// TestHalfOpenAtAnInstance: silent connections from an address in a record leave room for a
// handshake from there; from another address they don't.
func TestHalfOpenAtAnInstance(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, id := newborn(t)
		s.world.Readdress(id, netip.MustParseAddr("127.0.0.3"))
		_, err := p.registration().RegisterAgent(within(t), &nstancev1.RegisterAgentRequest{
			Nonce: s.nonceOf(id), PublicKey: publicPEM(t, newKey(t)), Ips: []string{"127.0.0.3"},
		})
		if err != nil {
			t.Fatal(err)
		}
		handshake := func(source string) error {
			config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}} //nolint:gosec // it is the server that is under test
			_, err := s.handshake(source, p.registrationAddr(), config)
			return err
		}
		for _, source := range []string{"127.0.0.3", "127.0.0.4"} {
			s.silent(40, source, p.registrationAddr())
		}
		eventually(t, "a handshake from the instance's address", func() error { return handshake("127.0.0.3") })
		if err := handshake("127.0.0.4"); err == nil {
			t.Error("a handshake from another address found room beside 40")
		}
	})
}

// loris keeps a connection to addr open with a slow request, and opens another when it is
// closed.
func (s *site) loris(ctx context.Context, source, addr string, open func(n int)) {
	for ctx.Err() == nil {
		conn, err := s.connectFrom(ctx, source, addr)
		if err != nil {
			continue
		}
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		open(1)
		for err == nil {
			_, err = conn.Write([]byte("G"))
			_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			var timeout net.Error
			if _, readErr := conn.Read(make([]byte, 1)); !errors.As(readErr, &timeout) || !timeout.Timeout() {
				break
			}
		}
		open(-1)
		stop()
		conn.Close()
		select {
		case <-time.After(5 * time.Second):
		case <-ctx.Done():
		}
	}
}

// TestHealthFlood: a thousand clients that never finish their request do not delay probes, not
// even from their own address, and hold at most a share of the connections.
func TestHealthFlood(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start().awaitLeading()
		addr := p.healthAddr()
		ctx, cancel := context.WithCancel(t.Context())
		var (
			all       sync.WaitGroup
			mu        sync.Mutex
			n, opened int
		)
		began := time.Now()
		for range 1000 {
			all.Go(func() {
				s.loris(ctx, "127.0.0.2", addr, func(change int) {
					mu.Lock()
					defer mu.Unlock()
					n += change
					opened += max(0, change)
				})
			})
		}
		defer all.Wait()
		defer cancel()
		eventually(t, "1,000 have connected, and 256 at most still are", func() error {
			mu.Lock()
			defer mu.Unlock()
			if opened < 1000 || n > 256 {
				return fmt.Errorf("%d have connected, %d are", opened, n)
			}
			return nil
		})
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s until the flood had only its share", took)
		}
		for range 5 {
			for _, source := range []string{"127.0.0.2", "127.0.0.3"} {
				client := s.web(source)
				client.Timeout = time.Second
				answer, err := client.Get("http://" + addr + "/")
				if err != nil {
					t.Errorf("a probe from %s: %v", source, err)
					continue
				}
				answer.Body.Close()
				if answer.StatusCode != http.StatusOK {
					t.Errorf("a probe from %s: %s", source, answer.Status)
				}
			}
		}
	})
}
