package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/pki"
)

type registrantSettings struct {
	Kit         string `json:"kit"`
	WarmUp      int    `json:"warm_up"` // this many on "warm", the others on "go"
	Concurrency int    `json:"concurrency"`
}

// registrant is an instance that is about to register.
type registrant struct {
	key   ed25519.PrivateKey
	nonce string
}

// playRegistrants registers every instance of the kit.
func playRegistrants(ctx context.Context, s *stage) error {
	var settings registrantSettings
	if err := s.read(&settings); err != nil {
		return err
	}
	k, err := readKit(settings.Kit)
	if err != nil {
		return err
	}
	bundle, err := pki.ParseBundle([]byte(k.CACert))
	if err != nil {
		return err
	}
	all, err := registrants(k)
	if err != nil {
		return err
	}
	s.tell(event{Kind: "ready"})
	for command := range s.commands {
		some := all
		if command == "warm" {
			some = all[:settings.WarmUp]
		}
		all = all[len(some):]
		before, err := cpuTime()
		if err != nil {
			return err
		}
		took, err := registerAll(ctx, bundle, some, k.Addrs.Registration, settings.Concurrency)
		if err != nil {
			return err
		}
		after, err := cpuTime()
		if err != nil {
			return err
		}
		s.tell(event{Kind: command, Value: took.Seconds(), CPU: (after - before).Seconds()})
	}
	return nil
}

// registrants creates the keys and nonces of a kit's instances.
func registrants(k kit) ([]registrant, error) {
	nonceKey, err := pki.ParsePrivateKey([]byte(k.NonceKey))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	out := make([]registrant, 0, len(k.Instances))
	for _, id := range k.Instances {
		key, err := pki.GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		token, err := nonce.Mint(nonceKey, nonce.Claims{
			Kind: nonce.KindAgent, Subject: string(id), ClusterID: clusterID, Tenant: fleet.DefaultTenant, Shard: shardID,
			ID: string(id), IssuedAt: now, NotBefore: now, ExpiresAt: now.Add(time.Hour),
		})
		if err != nil {
			return nil, err
		}
		out = append(out, registrant{key, token})
	}
	return out, nil
}

// registerAll registers all of them, several at a time, and returns the total duration.
func registerAll(ctx context.Context, bundle *pki.Bundle, all []registrant, addr string, concurrency int) (time.Duration, error) {
	todo := make(chan registrant, len(all))
	for _, r := range all {
		todo <- r
	}
	close(todo)
	errs := make([]error, concurrency)
	began := time.Now()
	var work sync.WaitGroup
	for n := range concurrency {
		work.Go(func() {
			for r := range todo {
				if _, err := register(ctx, bundle, r.key, []string{addr}, r.nonce); err != nil {
					errs[n] = err
					return
				}
			}
		})
	}
	work.Wait()
	return time.Since(began), errors.Join(errs...)
}
