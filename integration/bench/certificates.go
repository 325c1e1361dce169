package main

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/pki"
)

// measureCertificates measures the issuance of the certificates for instances' own services, with
// checked names, signed and encoded, on all cores.
func measureCertificates(ctx context.Context, b *bench) ([]figure, error) {
	ca, err := newLeafCA()
	if err != nil {
		return nil, err
	}
	return b.profiled(ctx, "certificates", func() ([]figure, error) {
		const each = 10_000
		workers := runtime.GOMAXPROCS(0)
		errs := make([]error, workers)
		var all sync.WaitGroup
		began := time.Now()
		for n := range workers {
			all.Go(func() { errs[n] = issueLeaves(ctx, ca, each) })
		}
		all.Wait()
		took := time.Since(began)
		for _, err := range errs {
			if err != nil {
				return nil, err
			}
		}
		return []figure{newFigure("leaf_certificates", float64(each*workers)/took.Seconds(), "/s", each*workers).noLess(5000).
			noted("one DNS name, one address; a new key's worth of parsing included; %d cores", workers)}, nil
	})
}

func newLeafCA() (*pki.CA, error) {
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return pki.NewCA(pki.CAConfig{Cluster: clusterID, Key: key, Now: time.Now(), Random: rand.Reader})
}

func issueLeaves(ctx context.Context, ca *pki.CA, n int) error {
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(pki.PublicKey(key))
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	for i := range n {
		parsed, err := pki.ParseLeafKey(text)
		if err != nil {
			return err
		}
		_, err = ca.IssueLeaf(pki.LeafRequest{
			Kind: pki.LeafServer, CN: fmt.Sprintf("node-%d", i), Organization: []string{"nodes"},
			DNS: []string{fmt.Sprintf("node-%d.example.internal", i)},
			IP:  []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}, Key: parsed, Now: time.Now(), TTL: 24 * time.Hour,
		}, rand.Reader)
		if err != nil {
			return err
		}
		if i%1000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
