// Package registry asks container registries what a create has to know before the
// engine pulls an image: which digest its name stands for, and whether a key has
// signed that. It speaks the OCI distribution protocol, takes the passwords of
// `docker login`, and trusts nothing that a registry says: what it reads is bounded,
// and is checked by digest or by signature.
//
// Errors are of the kinds of package provider. One that is none of them is temporary.
package registry

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/nstance/nstance/pkg/provider"
)

// Client asks registries. It is safe for concurrent use and keeps nothing that it
// was told.
type Client struct {
	keychain  authn.Keychain
	transport http.RoundTripper
}

// New returns a client with the passwords of a docker config.json, and those of the
// credential helpers that it names; an empty path is the file of whoever runs this
// process. The file is read again for each question, so a `docker login` counts at
// once.
func New(configFile string) *Client {
	c := &Client{keychain: patient{authn.DefaultKeychain}, transport: bounded{remote.DefaultTransport}}
	if configFile != "" {
		c.keychain = patient{keychain(configFile)}
	}
	return c
}

// Hosted reports whether an image's name says which registry has it. A bare name,
// such as nstance-agent:dev, is the engine's own: people know it as short for one on
// Docker Hub, where anybody may have taken it.
func Hosted(image string) bool {
	host, _, found := strings.Cut(image, "/")
	return found && (strings.ContainsAny(host, ".:") || host == "localhost")
}

// Check reports, without asking anybody, why an image can't be asked for.
func Check(image string) error {
	if !Hosted(image) {
		return errors.New("names no registry: want one before it, such as docker.io/" + image)
	}
	_, err := parse(image)
	return err
}

// parse reads an image's name. The library's own way of taking either form tells no
// reason.
func parse(image string) (name.Reference, error) {
	if strings.Contains(image, "@") {
		return name.NewDigest(image)
	}
	return name.NewTag(image)
}

// Resolve returns an image's name by digest, as repository@sha256:…. A name that has
// the digest already is not asked for.
func (c *Client) Resolve(ctx context.Context, image string) (string, error) {
	err := Check(image)
	if err != nil {
		return "", fmt.Errorf("%w: image %.200s: %w", provider.ErrInvalid, image, err)
	}
	ref, err := parse(image)
	if err != nil {
		return "", fmt.Errorf("%w: image %.200s: %w", provider.ErrInvalid, image, err)
	}
	if d, ok := ref.(name.Digest); ok {
		return d.Context().Digest(d.DigestStr()).Name(), nil
	}
	digest, err := c.digest(ctx, ref)
	if err != nil {
		return "", fmt.Errorf("ask the registry for image %s: %w", image, kind(err))
	}
	return ref.Context().Digest(digest).Name(), nil
}

// digest asks without reading the manifest, which some registries count as a pull;
// one that does not name the digest then is asked for the manifest.
func (c *Client) digest(ctx context.Context, ref name.Reference) (string, error) {
	options := c.options(ctx)
	head, err := remote.Head(ref, options...)
	if err == nil {
		return head.Digest.String(), nil
	}
	if ctx.Err() != nil || status(err) != 0 {
		return "", err
	}
	got, err := remote.Get(ref, options...)
	if err != nil {
		return "", err
	}
	return got.Digest.String(), nil
}

// options are those of every question. There is one attempt: the caller asks again.
func (c *Client) options(ctx context.Context) []remote.Option {
	return []remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(c.keychain), remote.WithTransport(c.transport),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}),
	}
}

// Login returns what an engine is given to pull an image with the same passwords: the
// X-Registry-Auth header's value.
func (c *Client) Login(ctx context.Context, image string) (string, error) {
	ref, err := parse(image)
	if err != nil {
		return "", fmt.Errorf("%w: image %.200s: %w", provider.ErrInvalid, image, err)
	}
	authenticator, err := authn.Resolve(ctx, c.keychain, ref.Context())
	if err != nil {
		return "", fmt.Errorf("find the password of registry %s: %w", ref.Context().RegistryStr(), err)
	}
	login, err := authn.Authorization(ctx, authenticator)
	if err != nil {
		return "", fmt.Errorf("find the password of registry %s: %w", ref.Context().RegistryStr(), err)
	}
	text, err := json.Marshal(map[string]string{
		"username": login.Username, "password": login.Password, "auth": login.Auth,
		"identitytoken": login.IdentityToken, "registrytoken": login.RegistryToken, "serveraddress": ref.Context().RegistryStr(),
	})
	if err != nil {
		return "", fmt.Errorf("encode the password of registry %s: %w", ref.Context().RegistryStr(), err)
	}
	return base64.URLEncoding.EncodeToString(text), nil
}

// status is that of a registry's answer, 0 when there was none.
func status(err error) int {
	var answer *transport.Error
	if errors.As(err, &answer) {
		return answer.StatusCode
	}
	return 0
}

// brief is an error whose text is cut: a registry, or where it redirects to, may answer
// with any.
type brief struct{ error }

const maxTold = 300

// Error implements error.
func (b brief) Error() string {
	text := b.error.Error()
	if len(text) > maxTold {
		return text[:maxTold] + "…"
	}
	return text
}

// Unwrap returns the whole error.
func (b brief) Unwrap() error { return b.error }

// kind sorts a registry's answers. Too many questions are ErrQuota, which concerns one
// image: ErrThrottled would slow down all calls of the provider.
func kind(err error) error {
	if err != nil {
		err = brief{err}
	}
	switch status(err) {
	case http.StatusNotFound:
		return fmt.Errorf("%w: %w", provider.ErrInvalid, err)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: %w", provider.ErrUnauthorized, err)
	case http.StatusTooManyRequests:
		return fmt.Errorf("%w: %w", provider.ErrQuota, err)
	default:
		return err
	}
}
