package registration_test

import (
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/registration"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestClocks: a nonce from the future means that this server's clock is behind, which is
// temporary; an expired one is refused for good. Either is told of the instance.
func TestClocks(t *testing.T) {
	const id = "knd01h455vb4pex5vsknk084sn02q"
	made := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	token, err := nonce.Mint(key, nonce.Claims{
		Kind: nonce.KindAgent, Subject: id, ClusterID: "c", Tenant: "default", Shard: "s", ID: id,
		IssuedAt: made, NotBefore: made, ExpiresAt: made.Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[time.Duration]rpc.Kind{-5 * time.Minute: rpc.Unavailable, 2 * time.Hour: rpc.Denied} {
		s := &shard{}
		service := registration.New(registration.Config{
			Shard:     func() (registration.Shard, error) { return s, nil },
			ClusterID: "c", ShardID: "s", NonceKey: key.Public().(ed25519.PublicKey),
			Now: func() time.Time { return made.Add(at) },
		})
		if _, err := service.RegisterAgent(t.Context(), &nstancev1.RegisterAgentRequest{Nonce: token}); !errors.Is(err, want) {
			t.Errorf("%s after it was made: %v, want kind %q", at, err, want)
		}
		if len(s.refused) != 1 || !strings.Contains(s.refused[0], "nonce") {
			t.Errorf("%s after it was made: told %q", at, s.refused)
		}
	}
}
