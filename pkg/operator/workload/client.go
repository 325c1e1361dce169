package workload

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// follower is a client of the current link.
type follower struct{ c *Cluster }

var _ client.Client = follower{}

func (f follower) do(call func(client.Client) error) error {
	l, err := f.c.now()
	if err != nil {
		return err
	}
	return call(l.client)
}

func (f follower) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	l, err := f.c.now()
	if err != nil {
		return err
	}
	if _, pod := o.(*corev1.Pod); pod {
		return l.reader.Get(ctx, key, o, opts...) // otherwise this would start a cache of full pods
	}
	return l.client.Get(ctx, key, o, opts...)
}

func (f follower) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	l, err := f.c.now()
	if err != nil {
		return err
	}
	if _, pods := list.(*corev1.PodList); pods {
		return l.reader.List(ctx, list, opts...)
	}
	return l.client.List(ctx, list, opts...)
}

func (f follower) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return f.do(func(c client.Client) error { return c.Apply(ctx, o, opts...) })
}

func (f follower) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return f.do(func(c client.Client) error { return c.Create(ctx, o, opts...) })
}

func (f follower) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return f.do(func(c client.Client) error { return c.Delete(ctx, o, opts...) })
}

func (f follower) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return f.do(func(c client.Client) error { return c.Update(ctx, o, opts...) })
}

func (f follower) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return f.do(func(c client.Client) error { return c.Patch(ctx, o, p, opts...) })
}

func (f follower) DeleteAllOf(ctx context.Context, o client.Object, opts ...client.DeleteAllOfOption) error {
	return f.do(func(c client.Client) error { return c.DeleteAllOf(ctx, o, opts...) })
}

func (f follower) Status() client.SubResourceWriter { return f.SubResource("status") }

func (f follower) SubResource(name string) client.SubResourceClient { return part{f, name} }

func (f follower) Scheme() *runtime.Scheme { return f.c.scheme }

// RESTMapper returns the manager's while there is no connection: only Kubernetes' own kinds
// are used there.
func (f follower) RESTMapper() meta.RESTMapper {
	if l, err := f.c.now(); err == nil {
		return l.client.RESTMapper()
	}
	return f.c.mapper
}

func (f follower) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, f.c.scheme)
}

func (f follower) IsObjectNamespaced(o runtime.Object) (bool, error) {
	return apiutil.IsObjectNamespaced(o, f.c.scheme, f.RESTMapper())
}

// part is a subresource client of the current link.
type part struct {
	f    follower
	name string
}

func (p part) do(call func(client.SubResourceClient) error) error {
	return p.f.do(func(c client.Client) error { return call(c.SubResource(p.name)) })
}

func (p part) Get(ctx context.Context, o, sub client.Object, opts ...client.SubResourceGetOption) error {
	return p.do(func(c client.SubResourceClient) error { return c.Get(ctx, o, sub, opts...) })
}

func (p part) Create(ctx context.Context, o, sub client.Object, opts ...client.SubResourceCreateOption) error {
	return p.do(func(c client.SubResourceClient) error { return c.Create(ctx, o, sub, opts...) })
}

func (p part) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	return p.do(func(c client.SubResourceClient) error { return c.Update(ctx, o, opts...) })
}

func (p part) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return p.do(func(c client.SubResourceClient) error { return c.Patch(ctx, o, patch, opts...) })
}

func (p part) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	return p.do(func(c client.SubResourceClient) error { return c.Apply(ctx, o, opts...) })
}

// uncached is an uncached reader of the current link.
type uncached struct{ c *Cluster }

func (u uncached) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	l, err := u.c.now()
	if err != nil {
		return err
	}
	return l.reader.Get(ctx, key, o, opts...)
}

func (u uncached) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	l, err := u.c.now()
	if err != nil {
		return err
	}
	return l.reader.List(ctx, list, opts...)
}
