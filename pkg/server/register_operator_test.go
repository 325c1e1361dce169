package server_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestRegisterOperator registers operators with the leader of any shard.
func TestRegisterOperator(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.putConfig("dev-2")
		p := s.start().awaitLeading()
		q := s.start(named("b"), func(c *server.Config) { c.Shard = "dev-2" }).awaitLeading()
		other := nstancev1.NewRegistrationServiceClient(s.dialShard("dev-2", q.registrationAddr(), nil))
		id, key := newID(t, fleet.OperatorKind), newKey(t)
		claims := operatorClaims(id)
		claims.Tenant = "prod"
		req := &nstancev1.RegisterOperatorRequest{Nonce: mint(t, s.trust(), claims), PublicKey: publicPEM(t, key)}

		for name, client := range map[string]nstancev1.RegistrationServiceClient{"first": p.registration(), "again": p.registration(),
			"on another shard": other} {
			resp, err := client.RegisterOperator(within(t), req)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			cert, err := pki.ParseCertificate([]byte(resp.GetIdentity().GetCertificate()))
			if err != nil {
				t.Fatal(err)
			}
			caller, err := pki.ParseCaller(cert, clusterID)
			if err != nil || caller.Role != pki.RoleOperator || caller.Tenant != "prod" || caller.ID != string(id) {
				t.Errorf("%s: certificate of %+v, %v", name, caller, err)
			}
		}
		if keys := s.keys("cluster/operator/"); len(keys) != 1 || keys[0] != "cluster/operator/prod."+id.StorageKey()+".json" {
			t.Errorf("records: %v", keys)
		}
		for name, client := range map[string]nstancev1.RegistrationServiceClient{"same shard": p.registration(), "other shard": other} {
			_, err := client.RegisterOperator(within(t), &nstancev1.RegisterOperatorRequest{Nonce: req.Nonce, PublicKey: publicPEM(t, newKey(t))})
			refused(t, err, codes.PermissionDenied, "another key")
			t.Log(name, ":", err)
		}

		_, err := p.registration().RegisterOperator(within(t),
			&nstancev1.RegisterOperatorRequest{Nonce: mint(t, s.trust(), claimsOf(newID(t, "knd"))), PublicKey: req.PublicKey})
		refused(t, err, codes.PermissionDenied, "agent")
		odd := operatorClaims(newID(t, "knd"))
		_, err = p.registration().RegisterOperator(within(t), &nstancev1.RegisterOperatorRequest{Nonce: mint(t, s.trust(), odd),
			PublicKey: req.PublicKey})
		refused(t, err, codes.PermissionDenied, "jti")
		_, err = p.registration().RegisterOperator(within(t),
			&nstancev1.RegisterOperatorRequest{Nonce: mint(t, s.trust(), operatorClaims(newID(t, fleet.OperatorKind))), PublicKey: "x"})
		refused(t, err, codes.InvalidArgument, "public_key")
		if n := len(s.keys("cluster/operator/")); n != 1 {
			t.Errorf("%d records", n)
		}
	})
}

// spender spends nonces by registering over the wire. The suite's names of keys
// become keys.
type spender struct {
	t      *testing.T
	site   *site
	client nstancev1.RegistrationServiceClient
}

func (s spender) spend(ctx context.Context, claims nonce.Claims, key string) error {
	seed, err := hex.DecodeString(key)
	if err != nil {
		return err
	}
	public, token := publicPEM(s.t, ed25519.NewKeyFromSeed(seed)), mint(s.t, s.site.trust(), claims)
	if claims.Kind == nonce.KindAgent {
		_, err = s.client.RegisterAgent(ctx, &nstancev1.RegisterAgentRequest{Nonce: token, PublicKey: public})
	} else {
		_, err = s.client.RegisterOperator(ctx, &nstancev1.RegisterOperatorRequest{Nonce: token, PublicKey: public})
	}
	if status.Code(err) == codes.PermissionDenied && strings.Contains(err.Error(), "another key") {
		return fmt.Errorf("%w: %w", errSpent, err)
	}
	return err
}

// TestNoncesAreSpentOnce runs the spending suite for both registrations.
func TestNoncesAreSpentOnce(t *testing.T) {
	t.Run("operators", simulation(func(t *testing.T) {
		s := newSite(t)
		s.putConfig("dev-2")
		p := s.start().awaitLeading()
		q := s.start(named("b"), func(c *server.Config) { c.Shard = "dev-2" }).awaitLeading()
		runSpendingSuite(t, operatorClaims(newID(t, fleet.OperatorKind)), func(t *testing.T) (a, b nonceSpender) {
			for _, key := range s.keys("cluster/operator/") {
				if err := s.inner.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
			other := nstancev1.NewRegistrationServiceClient(s.dialShard("dev-2", q.registrationAddr(), nil))
			return spender{t, s, p.registration()}, spender{t, s, other}
		})
	}))
	t.Run("agents", simulation(func(t *testing.T) {
		s := newSite(t, with("GROUPS", `"default": { "web": { "template": "knd", "size": 12 } }`))
		p := s.start().awaitLeading()
		eventually(t, "machines", func() error {
			if len(s.living()) < 12 {
				return errors.New("not yet")
			}
			return nil
		})
		ids := s.living()
		next := 0
		// The suite spends the nonce that it is given; ours are of one instance each.
		runSpendingSuite(t, claimsOf(ids[0]), func(*testing.T) (a, b nonceSpender) {
			next++
			mine := forInstance{spender{t, s, p.registration()}, ids[next]}
			return mine, mine
		})
	}))
}

// forInstance spends the nonce of another instance than the suite's, with that instance's
// keys: no two instances may share a key.
type forInstance struct {
	spender
	id fleet.InstanceID
}

func (f forInstance) spend(ctx context.Context, _ nonce.Claims, key string) error {
	own := sha256.Sum256([]byte(string(f.id) + key))
	return f.spender.spend(ctx, claimsOf(f.id), hex.EncodeToString(own[:]))
}
