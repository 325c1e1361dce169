package planetest

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// pause is how long Eventually waits before it looks again.
const pause = 25 * time.Millisecond

// Namespace makes a namespace for one test. It stays until the control plane ends:
// most of them have nobody who would empty it.
func (p *Plane) Namespace(tb testing.TB) string {
	tb.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := p.Client.Create(tb.Context(), ns); err != nil {
		tb.Fatalf("make a namespace: %v", err)
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

// Patch changes an object as it is now: change is called once o holds that.
func (p *Plane) Patch(tb testing.TB, o client.Object, change func()) {
	tb.Helper()
	if err := p.Client.Get(tb.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		tb.Fatal(err)
	}
	was, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		tb.Fatalf("the copy of a %T is no object", o)
	}
	change()
	if err := p.Client.Patch(tb.Context(), o, client.MergeFrom(was)); err != nil {
		tb.Fatal(err)
	}
}

// User returns the way to the API server of a user who may do what RBAC lets it.
func (p *Plane) User(tb testing.TB, name string, groups ...string) *rest.Config {
	tb.Helper()
	return p.user(tb, name, groups).Config()
}

// making is held while a user is made: envtest's CA counts its certificates without a
// lock, and tests run in parallel.
var making sync.Mutex //nolint:gochecknoglobals // as is the CA

func (p *Plane) user(tb testing.TB, name string, groups []string) *envtest.AuthenticatedUser {
	tb.Helper()
	making.Lock()
	defer making.Unlock()
	user, err := p.env.AddUser(envtest.User{Name: name, Groups: groups}, p.Config)
	if err != nil {
		tb.Fatalf("make the user %s: %v", name, err)
	}
	return user
}

// Eventually repeats check until it returns no error, and ends the test with the
// last one when it still does after that time.
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

// Consistently repeats check for that long, and ends the test with the first error:
// for what must not happen.
func Consistently(tb testing.TB, during time.Duration, what string, check func(context.Context) error) {
	tb.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(pause) {
		if err := check(tb.Context()); err != nil {
			tb.Fatalf("%s: %v", what, err)
		}
	}
}

// Kubeconfig is an administrator's way to the API server, as the text of a file.
func (p *Plane) Kubeconfig() []byte { return p.env.KubeConfig }

// UserKubeconfig is that of a user who may do what RBAC lets it.
func (p *Plane) UserKubeconfig(tb testing.TB, name string, groups ...string) []byte {
	tb.Helper()
	text, err := p.user(tb, name, groups).KubeConfig()
	if err != nil {
		tb.Fatalf("make the kubeconfig of %s: %v", name, err)
	}
	return text
}
