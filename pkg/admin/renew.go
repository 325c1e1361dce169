package admin

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	// nextKeyFile is the key of a renewal under way: for a moment identity.crt is
	// for this one, and LoadIdentity knows that.
	nextKeyFile = "identity.key.next"
	lockFile    = "identity.lock"
	// renewTimeout is what a renewal may take of the time of the command that it
	// comes before.
	renewTimeout = 5 * time.Second
	// renewRetry is how long an attempt that failed is not repeated.
	renewRetry = 10 * time.Minute
	// What goes on for long looks at its certificate between this often and that.
	minLook = 100 * time.Millisecond
	maxLook = time.Hour
)

// renewFirst renews the client's identity before a call, when that is due. It is
// best effort: the present certificate is good for the call, and a later call or
// the next command tries again.
func (c *Client) renewFirst(ctx context.Context, s Shard) {
	id := c.cfg.Identity
	if id == nil {
		return
	}
	c.renewal.Lock() // who calls meanwhile waits for the new certificate
	defer c.renewal.Unlock()
	now := id.endpoint.Now()
	if !id.due() || now.Before(c.renewAgain) {
		return
	}
	c.renewAgain = now.Add(id.patience())
	within, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	err := id.renew(within, s, c.cfg.UserAgent)
	if err == nil {
		err = c.turnOver()
	}
	if err != nil && ctx.Err() == nil && c.cfg.Warn != nil {
		c.cfg.Warn(fmt.Errorf("renew the identity in %s, which ends at %s: %w", id.dir,
			id.endpoint.Source.Keypair().Certificate().NotAfter.UTC().Format(time.RFC3339), err))
	}
}

// turnOver has the calls to come use connections that show the new certificate.
func (c *Client) turnOver() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, conn.TurnOver())
	}
	return errors.Join(errs...)
}

// keepIdentity renews the client's identity whenever that is due, until ctx ends.
func (c *Client) keepIdentity(ctx context.Context, shards []Shard) {
	id := c.cfg.Identity
	if id == nil || len(shards) == 0 {
		return
	}
	for n := 0; ; n++ {
		c.renewFirst(ctx, shards[n%len(shards)]) // any shard's leader can
		if retry.Wait(ctx, id.nextLook()) != nil {
			return
		}
	}
}

// patience is how long to wait after an attempt to renew.
func (i *Identity) patience() time.Duration {
	return min(renewRetry, pki.Life(i.endpoint.Source.Keypair().Certificate())/20)
}

// nextLook is how long to wait until a renewal may be due. Never for long, because
// a machine may sleep meanwhile, or its clock be set.
func (i *Identity) nextLook() time.Duration {
	wait := pki.RenewAt(i.endpoint.Source.Keypair().Certificate()).Sub(i.endpoint.Now())
	return min(max(wait, i.patience(), minLook), maxLook)
}

// due reports whether two thirds of the certificate's life are over.
func (i *Identity) due() bool {
	return !i.endpoint.Now().Before(pki.RenewAt(i.endpoint.Source.Keypair().Certificate()))
}

// renew asks a shard for another certificate, for another key, and puts both in
// the place of the old ones, in the folder and in this process. Somebody else who
// is at it with the same folder does it for us.
func (i *Identity) renew(ctx context.Context, s Shard, userAgent string) error {
	lock, err := os.OpenFile(filepath.Join(i.dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil
		}
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	now, err := loadIdentity(i.dir, i.endpoint.Now)
	if err != nil {
		return err
	}
	if now.due() { // else it was renewed since this command began
		if err := now.exchange(ctx, s, userAgent); err != nil {
			return err
		}
	}
	i.endpoint.Source.SetBundle(now.endpoint.Source.Bundle())
	i.endpoint.Source.SetKeypair(now.endpoint.Source.Keypair())
	return nil
}

// exchange asks and stores. The lock is held.
func (i *Identity) exchange(ctx context.Context, s Shard, userAgent string) error {
	key, err := i.nextKey()
	if err != nil {
		return err
	}
	granted, err := i.ask(ctx, s, userAgent, key)
	if err != nil {
		return &ShardError{Shard: s.ID, Err: err}
	}
	bundle, pair, err := i.check(granted, key)
	if err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	if err := errors.Join(
		replaceFile(filepath.Join(i.dir, caFile), bundle.PEM(), 0o644),
		replaceFile(filepath.Join(i.dir, certFile), pki.EncodeCertificate(pair.Certificate()), 0o644),
	); err != nil {
		return err
	}
	if err := i.promoteKey(); err != nil {
		return err
	}
	i.endpoint.Source.SetBundle(bundle)
	i.endpoint.Source.SetKeypair(pair)
	return nil
}

// nextKey returns the key of an attempt that came to nothing, or a new one that
// is stored already.
func (i *Identity) nextKey() (ed25519.PrivateKey, error) {
	path := filepath.Join(i.dir, nextKeyFile)
	if key := storedKey(path); key != nil {
		if !pki.PublicKey(key).Equal(i.endpoint.Source.Keypair().Certificate().PublicKey) {
			return key, nil
		}
		// The renewal before was cut short at its last step.
		if err := i.promoteKey(); err != nil {
			return nil, err
		}
	}
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	text, err := pki.EncodePrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, replaceFile(path, text, 0o600)
}

// storedKey is the key in a file; nil when there is none that can be used.
func storedKey(path string) ed25519.PrivateKey {
	if body, err := os.ReadFile(path); err == nil {
		if key, err := pki.ParsePrivateKey(body); err == nil {
			return key
		}
	}
	return nil
}

func (i *Identity) ask(ctx context.Context, s Shard, userAgent string, key ed25519.PrivateKey) (granted *nstancev1.Identity, err error) {
	public, err := pki.EncodePublicKey(pki.PublicKey(key))
	if err != nil {
		return nil, err
	}
	client, err := rpc.NewClient(rpc.ClientConfig{
		Addrs: s.Addrs, UserAgent: userAgent, Random: mathrand.Float64,
		TLS: func(host string) *tls.Config { return i.TLS(s.ID, host) },
	})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	err = client.Do(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		resp, err := nstancev1.NewOperatorServiceClient(conn).RenewCertificate(ctx, &nstancev1.OperatorServiceRenewCertificateRequest{PublicKey: string(public)})
		granted = resp.GetIdentity()
		return err
	})
	return granted, err
}

// check accepts only a certificate for this key, of the same operator, that the
// CAs beside it have signed.
func (i *Identity) check(granted *nstancev1.Identity, key ed25519.PrivateKey) (*pki.Bundle, *pki.Keypair, error) {
	bundle, err := pki.ParseBundle([]byte(granted.GetCaChain()))
	if err != nil {
		return nil, nil, err
	}
	cert, err := pki.ParseCertificate([]byte(granted.GetCertificate()))
	if err != nil {
		return nil, nil, err
	}
	pair, err := pki.NewKeypair(cert, key)
	if err != nil {
		return nil, nil, err
	}
	was, err := pki.ParseCaller(i.endpoint.Source.Keypair().Certificate(), i.endpoint.Cluster)
	if err != nil {
		return nil, nil, err
	}
	is, err := pki.ParseCaller(cert, i.endpoint.Cluster)
	switch {
	case err != nil:
		return nil, nil, err
	case is.Role != was.Role || is.Tenant != was.Tenant || is.ID != was.ID:
		return nil, nil, fmt.Errorf("the certificate is for %s %s of tenant %s: want %s %s of tenant %s", is.Role, is.ID, is.Tenant, was.Role, was.ID, was.Tenant)
	case !slices.ContainsFunc(bundle.Certificates(), func(ca *x509.Certificate) bool { return cert.CheckSignatureFrom(ca) == nil }):
		return nil, nil, fmt.Errorf("%w: none of the CAs beside it signed the certificate", pki.ErrUntrusted)
	}
	return bundle, pair, nil
}

// promoteKey makes the next key the key. The lock is held.
func (i *Identity) promoteKey() error {
	return os.Rename(filepath.Join(i.dir, nextKeyFile), filepath.Join(i.dir, keyFile))
}

// replaceFile writes a file whole or not at all, and durably.
func replaceFile(path string, body []byte, mode os.FileMode) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(temp.Name())
		}
	}()
	_, err = temp.Write(body)
	if err = errors.Join(err, temp.Chmod(mode), temp.Sync(), temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
