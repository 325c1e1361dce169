package planetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Patience is how long tests wait for what a control plane is to come to. On a machine that
// is busy only what never comes takes longer.
const Patience = 3 * time.Minute

// pause is how long Eventually waits before it looks again.
const pause = 25 * time.Millisecond

// Namespace creates a namespace for one test. It stays until the control plane stops: most of
// them have no controller that would empty it.
func (p *Plane) Namespace(tb testing.TB) string {
	tb.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := p.Client.Create(tb.Context(), ns); err != nil {
		tb.Fatalf("create a namespace: %v", err)
	}
	return ns.Name
}

// Make creates an object, as an administrator.
func (p *Plane) Make(tb testing.TB, o client.Object) {
	tb.Helper()
	if err := p.Client.Create(tb.Context(), o); err != nil {
		tb.Fatal(err)
	}
}

// Delete deletes an object, as an administrator.
func (p *Plane) Delete(tb testing.TB, o client.Object) {
	tb.Helper()
	if err := p.Client.Delete(tb.Context(), o); err != nil {
		tb.Fatal(err)
	}
}

// Patch patches an object: change is called with o as last read.
func (p *Plane) Patch(tb testing.TB, o client.Object, change func()) {
	tb.Helper()
	if err := p.Client.Get(tb.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		tb.Fatal(err)
	}
	was, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		tb.Fatalf("the copy of a %T is not an object", o)
	}
	change()
	if err := p.Client.Patch(tb.Context(), o, client.MergeFrom(was)); err != nil {
		tb.Fatal(err)
	}
}

// User returns the API server access of a user with the permissions that RBAC grants.
func (p *Plane) User(tb testing.TB, name string, groups ...string) *rest.Config {
	tb.Helper()
	return p.user(tb, name, groups).Config()
}

// making serializes the creation of users: envtest's CA counts its certificates without a
// lock, and tests run in parallel.
var making sync.Mutex //nolint:gochecknoglobals // like the CA

func (p *Plane) user(tb testing.TB, name string, groups []string) *envtest.AuthenticatedUser {
	tb.Helper()
	making.Lock()
	defer making.Unlock()
	user, err := p.env.AddUser(envtest.User{Name: name, Groups: groups}, p.Config)
	if err != nil {
		tb.Fatalf("create the user %s: %v", name, err)
	}
	return user
}

// Eventually repeats check until it succeeds, and fails the test with its last error after
// that time.
func Eventually(tb testing.TB, within time.Duration, what string, check func(context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), within)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("%s: not within %v: %v", what, within, err)
		case <-time.After(pause):
		}
	}
}

// Consistently repeats check for that time, and fails the test with its first error: for what
// must not happen.
func Consistently(tb testing.TB, during time.Duration, what string, check func(context.Context) error) {
	tb.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(pause) {
		if err := check(tb.Context()); err != nil {
			tb.Fatalf("%s: %v", what, err)
		}
	}
}

// AtRest waits until what look returns has stayed the same for that time, and returns it. It
// fails the test with the last difference if that never happens: something is written again and
// again. A state that has been reached may be followed by one more write, so a test that
// nothing is written begins here, and not with what it read when it saw the state. A long time
// between two looks, in which this process stood still, counts little.
func AtRest(tb testing.TB, during time.Duration, what string, look func(context.Context) (map[string]string, error)) map[string]string {
	tb.Helper()
	var last map[string]string
	var rest time.Duration
	Eventually(tb, Patience, what+" is at rest", func(ctx context.Context) error {
		for before := time.Now(); rest < during; time.Sleep(pause) {
			now, err := look(ctx)
			if err != nil || last == nil || !maps.Equal(now, last) {
				err = errors.Join(err, errors.New(Differences(last, now)))
				last, rest = now, 0
				return err
			}
			at := time.Now()
			rest, before = rest+min(at.Sub(before), 4*pause), at
		}
		return nil
	})
	return last
}

// Text returns an object with its resource version as text, so that two of the same text have
// had no write in between. It removes the managed fields.
func Text(o client.Object) string {
	o.SetManagedFields(nil)
	text, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Differences lists the entries of two maps that are not the same, one a line.
func Differences(was, now map[string]string) string {
	var out []string
	for key, value := range now {
		if old, ok := was[key]; !ok {
			out = append(out, fmt.Sprintf("%s is new: %s", key, value))
		} else if old != value {
			out = append(out, fmt.Sprintf("%s was %s\n  and is %s", key, old, value))
		}
	}
	for key := range was {
		if _, ok := now[key]; !ok {
			out = append(out, key+" is gone")
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// Cached waits until a cache has an object as it was written last, or lacks it as the API server
// does, so that what is written next is seen later. Each kind has a watch of its own, and one
// may be behind another.
func (p *Plane) Cached(tb testing.TB, cache client.Reader, o client.Object) {
	tb.Helper()
	key := client.ObjectKeyFromObject(o)
	seen, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		tb.Fatalf("the copy of a %T is not an object", o)
	}
	Eventually(tb, Patience, "the cache has the last version", func(ctx context.Context) error {
		err, behind := p.Client.Get(ctx, key, o), cache.Get(ctx, key, seen)
		if apierrors.IsNotFound(err) && apierrors.IsNotFound(behind) {
			return nil
		}
		if err := errors.Join(err, behind); err != nil {
			return err
		}
		if is, want := seen.GetResourceVersion(), o.GetResourceVersion(); is != want {
			return fmt.Errorf("it has %s, want %s", is, want)
		}
		return nil
	})
}

// Kubeconfig returns an administrator's kubeconfig.
func (p *Plane) Kubeconfig() []byte { return p.env.KubeConfig }

// UserKubeconfig returns the kubeconfig of a user with the permissions that RBAC grants.
func (p *Plane) UserKubeconfig(tb testing.TB, name string, groups ...string) []byte {
	tb.Helper()
	text, err := p.user(tb, name, groups).KubeConfig()
	if err != nil {
		tb.Fatalf("create the kubeconfig of %s: %v", name, err)
	}
	return text
}
