package s3

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/object"
)

// identityTime bounds one request for the keys of a web identity, or of a credentials file that
// names another service.
const identityTime = 5 * time.Second

// keys returns the keeper of the signing keys, which refreshes them when necessary; nil if c has
// static keys. It sends nothing yet. The client's own chain is not used: it waits forever for a
// service that does not respond, and sends unsigned requests if it finds no keys.
func (c Config) keys() (*awsclient.Keeper, error) {
	if c.AccessKeyID != "" {
		return nil, nil
	}
	if c.Credentials != nil {
		return awsclient.Keep(c.Credentials.Retrieve), nil
	}
	s := &sources{client: &http.Client{Timeout: identityTime}}
	if awsclient.WebIdentity() {
		at, err := c.tokenService()
		if err != nil {
			return nil, err
		}
		s.other = s.ask(&credentials.IAM{Client: s.client, Endpoint: at, Region: c.Region})
	} else {
		other, err := awsclient.Config{Metadata: c.Metadata, Local: c.Local}.Ask()
		if err != nil {
			return nil, err
		}
		s.other = other
	}
	return awsclient.Keep(s.find), nil
}

// tokenService returns the URL of the service for web identities. The client knows the
// suffixes of two partitions only.
func (c Config) tokenService() (string, error) {
	switch {
	case c.TokenService != "":
		return c.TokenService, nil
	case c.Region == "" && !c.FIPS:
		return credentials.DefaultSTSRoleEndpoint, nil
	}
	url, err := awsclient.Hosts{Region: c.Region, DualStack: c.DualStack, FIPS: c.FIPS}.URL(awsclient.TokenService)
	if err != nil {
		return "", fmt.Errorf("find the service for web identities: region (AWS_REGION) %w", err)
	}
	return url, nil
}

// signer returns the client's credentials: those of the keeper, or else the static ones of c.
func (c Config) signer(keys *awsclient.Keeper) *credentials.Credentials {
	if keys == nil {
		return credentials.NewStaticV4(c.AccessKeyID, c.SecretAccessKey, c.SessionToken)
	}
	return credentials.New(kept{keys})
}

// ready waits until there are signing keys, within ctx: the client fetches them serially and
// ignores contexts.
func (s *Store) ready(ctx context.Context) error {
	if s.keys == nil {
		return nil
	}
	if _, err := s.keys.Retrieve(ctx); err != nil {
		return fmt.Errorf("%w: find credentials: %w", object.ErrUnknown, err)
	}
	return nil
}

// doubt discards keys that S3 refused as expired, so that they are refreshed.
func (s *Store) doubt(answer minio.ErrorResponse) {
	if s.keys != nil && awsclient.ExpiredCode(answer.Code) {
		s.keys.Forget("")
	}
}

// source is a source of keys.
type source func(context.Context) (awsclient.Keys, error)

// sources are the shared credentials file, and the source used if that has no keys. They are
// called serially.
type sources struct {
	client *http.Client
	file   source // set once it had keys: a machine's role never replaces it
	other  source
}

func (s *sources) find(ctx context.Context) (awsclient.Keys, error) {
	if s.file != nil {
		return s.file(ctx)
	}
	file := s.ask(&credentials.FileAWSCredentials{})
	found, noFile := file(ctx)
	if noFile == nil && found.HasKeys() {
		s.file = file
		return found, nil
	}
	found, err := s.other(ctx)
	if err != nil && noFile != nil && !errors.Is(noFile, fs.ErrNotExist) {
		err = fmt.Errorf("%w; and the shared credentials file: %w", err, noFile)
	}
	return found, err
}

// ask adapts one of the client's own sources.
func (s *sources) ask(of credentials.Provider) source {
	return func(ctx context.Context) (awsclient.Keys, error) {
		v, err := of.RetrieveWithCredContext(&credentials.CredContext{Client: s.client, Context: ctx})
		if err != nil {
			return awsclient.Keys{}, err
		}
		return awsclient.Keys{
			AccessKeyID: v.AccessKeyID, SecretAccessKey: v.SecretAccessKey, SessionToken: v.SessionToken,
			CanExpire: !v.Expiration.IsZero(), Expires: v.Expiration,
		}, nil
	}
}

// kept adapts a keeper to the client, which retrieves keys before each request.
type kept struct{ *awsclient.Keeper }

var _ credentials.Provider = kept{}

// IsExpired implements credentials.Provider.
func (kept) IsExpired() bool { return true }

// Retrieve implements credentials.Provider.
func (k kept) Retrieve() (credentials.Value, error) { return k.RetrieveWithCredContext(nil) }

// RetrieveWithCredContext implements credentials.Provider. It returns an error rather than no
// keys.
func (k kept) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	ctx := context.Background()
	if cc != nil && cc.Context != nil {
		ctx = cc.Context
	}
	found, err := k.Keeper.Retrieve(ctx)
	if err != nil {
		return credentials.Value{}, fmt.Errorf("find credentials: %w", err)
	}
	return credentials.Value{
		AccessKeyID: found.AccessKeyID, SecretAccessKey: found.SecretAccessKey, SessionToken: found.SessionToken,
		Expiration: found.Expires, SignerType: credentials.SignatureV4,
	}, nil
}
