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
	// tagFor is how long a tag is taken to stand for the same digest: a group that
	// grows asks once.
	tagFor = 30 * time.Second
	// readyTimeout bounds the way from a name to an image on the engine. It goes on
	// when the create that began it gave up, for the next one needs it too.
	readyTimeout = 20 * time.Minute
	// askTimeout bounds the questions to the registry in it: one that hangs must not
	// keep the creates of an image from asking again.
	askTimeout = 15 * time.Second
	// maxRemembered bounds what is remembered of names, and of digests.
	maxRemembered = 1024
)

// images brings images from registries to the engine: name → digest → signature →
// pull. It is safe for concurrent use; one image is on its way once at a time.
type images struct {
	cfg      Config
	api      *client.Client
	registry *registry.Client
	key      *signature.Key // nil: images need no signature
	now      func() time.Time
	life     context.Context // of what outlives the create that began it
	close    func()
	flights  singleflight.Group

	mu       sync.Mutex
	tags     map[string]resolved // by name
	verified map[string]bool     // by name and digest
}

// resolved is what a name stands for, until then.
type resolved struct {
	reference string
	until     time.Time
}

func newImages(cfg Config, api *client.Client, key *signature.Key) *images {
	i := &images{
		cfg: cfg, api: api, registry: registry.New(cfg.RegistryConfig), key: key, now: cfg.Now,
		tags: map[string]resolved{}, verified: map[string]bool{},
	}
	if i.now == nil {
		i.now = time.Now
	}
	i.life, i.close = context.WithCancel(context.Background())
	return i
}

// ready returns the reference by digest under which the engine has the image of this
// name, once it has it. A name that no registry can be asked for, an image that is not
// signed, and one that is not to be pulled, are ErrInvalid. The guard of whichever
// create comes first is asked before a pull; where that one refuses, those that came
// after it ask their own, which may be of a later term.
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

// refusal is what the guard of a create said.
type refusal struct{ error }

// fly waits for the one way that an image is on.
func (i *images) fly(ctx context.Context, name string) (string, error) {
	flight := i.flights.DoChan(name, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
		defer cancel()
		defer context.AfterFunc(i.life, cancel)() //nolint:contextcheck // the provider's life ends it too
		return i.bring(ctx, name)
	})
	select {
	case <-ctx.Done():
		return "", fmt.Errorf("image %s is still on its way: %w", name, ctx.Err())
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

// trusted returns what a name stands for, by digest, once that is verified.
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

// resolve returns what a name stands for, by digest.
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

// verify fails unless the key has signed the image, if there is a key. What was
// verified stays so, for a digest names the same bytes for ever.
func (i *images) verify(ctx context.Context, reference string) error {
	if i.key == nil {
		return nil
	}
	i.mu.Lock()
	known := i.verified[reference]
	i.mu.Unlock()
	if known {
		return nil
	}
	if err := i.registry.Verify(ctx, reference, *i.key); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.verified) >= maxRemembered {
		clear(i.verified)
	}
	i.verified[reference] = true
	return nil
}

// trusts reports whether a container of this image may be started: without a key any,
// else one of an image by digest that the key signed.
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

// pull has the engine fetch an image, with the registry's password.
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

// errNoImage says that the engine has no image of the name that a create gave it.
var errNoImage = errors.New("the engine lacks the image")
