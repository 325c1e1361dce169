package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// fromLoopback dials from an address of the 127.0.0.0/8 network. Only Linux has
// them all.
func fromLoopback(t *testing.T, source string) *net.Dialer {
	t.Helper()
	if runtime.GOOS != "linux" && source != "127.0.0.1" {
		t.Skip("needs the whole of 127.0.0.0/8 on the loopback interface")
	}
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}, Timeout: patience}
}

// TestLargeHello: no port reads 64 KiB of a handshake from a stranger.
func TestLargeHello(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.start().awaitLeading()
	for name, addr := range map[string]string{
		"election": p.addr("serving", "election"), "registration": p.registrationAddr(), "operator": p.operatorAddr(), "agent": p.agentAddr(),
	} {
		conn, err := fromLoopback(t, "127.0.0.1").Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// The header of a ClientHello of 65,532 bytes, and half of them in two records.
		_, _ = conn.Write([]byte{22, 3, 1, 64, 0, 1, 0, 255, 252, 3, 3})
		_, _ = conn.Write(make([]byte, 1<<14-6))
		_, _ = conn.Write([]byte{22, 3, 1, 64, 0})
		_, _ = conn.Write(make([]byte, 1<<14))
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, err = io.Copy(io.Discard, conn)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%s: the server waits for the rest of it", name)
		}
	}
}

// TestHalfOpen: connections that never begin a handshake take no room from calls,
// and all but a source's share of them is gone in 5 s.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.start().awaitLeading()
	began := time.Now()
	var flood []net.Conn
	for range 300 {
		conn, err := fromLoopback(t, "127.0.0.2").Dial("tcp", p.operatorAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		flood = append(flood, conn)
	}
	if _, err := p.group("web"); err != nil {
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
	if took := time.Since(began); took > 9*time.Second { // at 10 s every handshake is over
		t.Errorf("that took %s", took)
	}
}

// TestHalfOpenAtAnInstance: connections that say nothing, from an address that a
// record names, leave room for a handshake from there; from another they don't.
func TestHalfOpenAtAnInstance(t *testing.T) {
	t.Parallel()
	s, p, id := newborn(t)
	_, err := p.registration().RegisterAgent(within(t), &nstancev1.RegisterAgentRequest{
		Nonce: s.nonceOf(id), PublicKey: publicPEM(t, newKey(t)), Ips: []string{"127.0.0.3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	handshake := func(source string) error {
		dialer := fromLoopback(t, source)
		dialer.Timeout = 2 * time.Second
		config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}} //nolint:gosec // it is the server that is under test
		conn, err := tls.DialWithDialer(dialer, "tcp", p.registrationAddr(), config)
		if err == nil {
			conn.Close()
		}
		return err
	}
	for _, source := range []string{"127.0.0.3", "127.0.0.4"} {
		for range 40 {
			conn, err := fromLoopback(t, source).Dial("tcp", p.registrationAddr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
	}
	eventually(t, "a handshake from the instance's address", func() error { return handshake("127.0.0.3") })
	if err := handshake("127.0.0.4"); err == nil {
		t.Error("a handshake from another address found room beside 40")
	}
}

// loris keeps a connection to addr open, which says a little at a time, and
// opens the next when that is closed.
func loris(ctx context.Context, dialer *net.Dialer, addr string, open func(n int)) {
	for ctx.Err() == nil {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
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

// TestHealthFlood: a thousand clients that never finish their request keep no
// probe waiting, not even one of their own address, and hold no more than a
// share of the connections.
func TestHealthFlood(t *testing.T) {
	t.Parallel()
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
			loris(ctx, fromLoopback(t, "127.0.0.2"), addr, func(change int) {
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
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("it took %s until the flood had only its share", took)
	}
	for range 5 {
		for _, source := range []string{"127.0.0.2", "127.0.0.3"} {
			client := http.Client{Timeout: time.Second, Transport: &http.Transport{
				DialContext: fromLoopback(t, source).DialContext, DisableKeepAlives: true,
			}}
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
}
