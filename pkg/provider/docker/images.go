package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"golang.org/x/sync/singleflight"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker/registry"
	"github.com/nstance/nstance/pkg/provider/docker/signature"
)

const (
	// tagFor is how long a resolved tag is cached, so that a growing group asks once.
	tagFor = 30 * time.Second
	// readyTimeout bounds the preparation of an image. It outlives the create that started it,
	// as the next create needs the image too.
	readyTimeout = 20 * time.Minute
	// askTimeout bounds its registry requests: a hanging one must not block retries by other
	// creates of the image.
	askTimeout = 15 * time.Second
	// maxRemembered bounds the caches of names and of digests.
	maxRemembered = 1024
)

// images brings images from registries to the engine: it resolves the name to a digest,
// verifies the signature, and pulls. It is safe for concurrent use; each image is prepared once
// at a time.
type images struct {
	cfg      Config
	api      *client.Client
	registry *registry.Client
	key      *signature.Key // nil: images need no signature
	now      func() time.Time
	life     context.Context // for work that outlives the create that started it
	close    func()
	flights  singleflight.Group

	mu       sync.Mutex
	tags     map[string]resolved       // by name
	verified map[string]bool           // by name and digest
	seen     map[string]*registry.Seen // manifests known not to be a signature, by image name and digest
}

// resolved is a cached digest and its expiry.
type resolved struct {
	reference string
	until     time.Time
}

func newImages(cfg Config, api *client.Client, key *signature.Key) *images {
	i := &images{
		cfg: cfg, api: api, registry: registry.New(cfg.RegistryConfig), key: key, now: cfg.Now,
		tags: map[string]resolved{}, verified: map[string]bool{}, seen: map[string]*registry.Seen{},
	}
	if i.now == nil {
		i.now = time.Now
	}
	i.life, i.close = context.WithCancel(context.Background())
	return i
}

// ready returns the digest reference under which the engine has the image, once it has it. It
// returns ErrInvalid if no registry can be asked, the image is not signed, or it must not be
// pulled. The guard of the first create is called before a pull; if it refuses, later creates
// call their own, which may be of a later term.
func (i *images) ready(ctx context.Context, name string) (string, error) {
	for {
		reference, err := i.fly(ctx, name)
		var refused refusal
		if !errors.As(err, &refused) {
			return reference, err
		}
		if err := provider.Permit(ctx); err != nil {
			return "", err
		}
	}
}

// refusal is an error of a create's guard.
type refusal struct{ error }

// fly waits for the shared preparation of an image.
func (i *images) fly(ctx context.Context, name string) (string, error) {
	flight := i.flights.DoChan(name, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
		defer cancel()
		defer context.AfterFunc(i.life, cancel)() //nolint:contextcheck // also ends with the provider
		return i.bring(ctx, name)
	})
	select {
	case <-ctx.Done():
		return "", fmt.Errorf("image %s is still being prepared: %w", name, ctx.Err())
	case landed := <-flight:
		reference, _ := landed.Val.(string)
		return reference, landed.Err
	}
}

func (i *images) bring(ctx context.Context, name string) (string, error) {
	reference, err := i.trusted(ctx, name)
	if err != nil {
		return "", err
	}
	_, err = i.api.ImageInspect(ctx, reference)
	switch {
	case err == nil:
		return reference, nil
	case !errdefs.IsNotFound(err):
		return "", fmt.Errorf("inspect image %s: %w", reference, unreached(err))
	case i.cfg.Pull == PullNever:
		return "", fmt.Errorf("%w: the engine has no image %s, and options.pull is never", provider.ErrInvalid, reference)
	}
	if err := i.pull(ctx, reference); err != nil {
		return "", fmt.Errorf("pull image %s: %w", reference, err)
	}
	return reference, nil
}

// trusted resolves a name to a digest and verifies it.
func (i *images) trusted(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	reference, err := i.resolve(ctx, name)
	if err != nil {
		return "", err
	}
	if err := i.verify(ctx, reference); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return reference, nil
}

// resolve resolves a name to a digest.
func (i *images) resolve(ctx context.Context, name string) (string, error) {
	i.mu.Lock()
	known := i.tags[name]
	i.mu.Unlock()
	if i.now().Before(known.until) {
		return known.reference, nil
	}
	reference, err := i.registry.Resolve(ctx, name)
	if err != nil {
		return "", err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.tags) >= maxRemembered {
		clear(i.tags)
	}
	i.tags[name] = resolved{reference, i.now().Add(tagFor)}
	return reference, nil
}

// verify returns an error unless the key has signed the image, if a key is configured. Results
// are cached for ever, as digests are immutable.
func (i *images) verify(ctx context.Context, reference string) error {
	if i.key == nil {
		return nil
	}
	i.mu.Lock()
	known, seen := i.verified[reference], i.seen[reference]
	if !known && seen == nil {
		if len(i.seen) >= maxRemembered {
			clear(i.seen)
		}
		seen = new(registry.Seen)
		i.seen[reference] = seen
	}
	i.mu.Unlock()
	if known {
		return nil
	}
	if err := i.registry.Verify(ctx, reference, *i.key, seen); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.seen, reference)
	if len(i.verified) >= maxRemembered {
		clear(i.verified)
	}
	i.verified[reference] = true
	return nil
}

// trusts reports whether a container of this image may be started: with a key, only an image by
// digest that the key signed.
func (i *images) trusts(ctx context.Context, image string) (bool, error) {
	if i.key == nil {
		return true, nil
	}
	if !strings.Contains(image, "@sha256:") {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err := i.verify(ctx, image)
	if errors.Is(err, provider.ErrInvalid) {
		return false, nil
	}
	return err == nil, err
}

// pull makes the engine pull an image, with the registry's password.
func (i *images) pull(ctx context.Context, reference string) error {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	login, err := i.registry.Login(asking, reference)
	if err != nil {
		return err
	}
	if err := provider.Permit(ctx); err != nil {
		return refusal{err}
	}
	began := i.now()
	body, err := i.api.ImagePull(ctx, reference, image.PullOptions{RegistryAuth: login})
	if err != nil {
		return unpulled(err)
	}
	defer body.Close()
	if err := importResult(body); err != nil {
		return unpulled(err)
	}
	i.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "image pulled", slog.String("image", reference), slog.Duration("took", i.now().Sub(began)))
	return nil
}

// errNoImage means that the engine does not have the image of a create.
var errNoImage = errors.New("the engine lacks the image")
