package registration

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/grpc"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// register tries one shard after another. All attempts use the same nonce and key, so a lost
// answer does no harm.
func (c Config) register(ctx context.Context, id *identity.Identity, nonce string) error {
	var refusals []error
	for _, shard := range c.Shards {
		err := id.Obtain(ctx, func(ctx context.Context, publicKey string) (identity.Issued, error) {
			return c.request(ctx, id, shard, nonce, publicKey)
		})
		var local *identity.LocalError
		switch {
		case err == nil:
			c.Logger.LogAttrs(ctx, slog.LevelInfo, "registered", slog.String("operator", id.ID()), slog.String("shard", shard.ID),
				slog.Time("certificate_expires", id.Certificate().NotAfter))
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &local):
			return err
		}
		err = &client.ShardError{Shard: shard.ID, Err: err}
		c.Logger.LogAttrs(ctx, slog.LevelWarn, "could not register", slog.Any("addresses", shard.Addrs), slog.Any("error", err))
		refusals = append(refusals, err)
	}
	return fmt.Errorf("register: no shard issued a certificate:\n%w", errors.Join(refusals...))
}

func (c Config) request(
	ctx context.Context, id *identity.Identity, shard client.Shard, nonce, publicKey string,
) (issued identity.Issued, err error) {
	conn, err := rpc.NewClient(rpc.ClientConfig{
		Addrs: shard.Addrs, UserAgent: c.UserAgent, Random: c.Random, Dialer: c.Dialer,
		TLS: func(host string) *tls.Config { return id.TLS(shard.ID, host) },
	})
	if err != nil {
		return issued, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	err = conn.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
		request := &nstancev1.RegisterOperatorRequest{Nonce: nonce, PublicKey: publicKey}
		answer, err := nstancev1.NewRegistrationServiceClient(cc).RegisterOperator(ctx, request)
		issued = issuedBy(answer.GetIdentity())
		return err
	})
	return issued, err
}

func issuedBy(granted *nstancev1.Identity) identity.Issued {
	return identity.Issued{Certificate: granted.GetCertificate(), CAs: granted.GetCaChain(), Signature: granted.GetCaChainSignature()}
}
