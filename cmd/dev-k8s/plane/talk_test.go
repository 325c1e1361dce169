package plane_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// transcript is a scenario with an API server, and the results of its requests.
type transcript struct {
	*cluster
	t     *testing.T
	ns    string
	lines []string
}

// record records the result of a request.
func (k *transcript) record(what string, got any, err error) {
	if err != nil {
		// Revisions and UIDs differ between the servers.
		got = fmt.Sprintf("%s (%d)", apierrors.ReasonForError(err), code(err))
	}
	k.lines = append(k.lines, fmt.Sprintf("%s: %v", what, got))
}

func code(err error) int32 {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

// TestSameResultsAsEtcd: an API server over files has the same results as one over etcd.
func TestSameResultsAsEtcd(t *testing.T) {
	for name, scenario := range map[string]func(*transcript){
		"writes": writes, "apply": apply, "watches": watches, "pages": pages, "finalizers": finalizers, "eviction": eviction,
		"tokens": tokens, "definitions": definitions, "leases": leases, "garbage": garbage, "namespaces": namespaces,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, got := runScenario(t, etcd(t), name, scenario), runScenario(t, files(t), name, scenario)
			if !slices.Equal(want, got) {
				t.Errorf("over etcd:\n  %s\nover files:\n  %s", strings.Join(want, "\n  "), strings.Join(got, "\n  "))
			}
			t.Logf("both:\n  %s", strings.Join(got, "\n  "))
		})
	}
}

func runScenario(t *testing.T, c *cluster, name string, scenario func(*transcript)) []string {
	t.Helper()
	k := &transcript{cluster: c, t: t, ns: "talk-" + name}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: k.ns}}
	if _, err := c.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the service account of "+k.ns, func() error {
		_, err := c.client.CoreV1().ServiceAccounts(k.ns).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	scenario(k)
	return k.lines
}

func (k *transcript) eventually(what string, check func() error) {
	k.t.Helper()
	eventually(k.t, what, check)
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"v": value}}
}

func writes(k *transcript) {
	ctx, maps := k.t.Context(), k.client.CoreV1().ConfigMaps(k.ns)
	made, err := maps.Create(ctx, configMap("a", "1"), metav1.CreateOptions{})
	k.record("create", made.Data, err)
	_, err = maps.Create(ctx, configMap("a", "1"), metav1.CreateOptions{})
	k.record("create again", "", err)
	_, err = maps.Create(ctx, configMap("B", "1"), metav1.CreateOptions{})
	k.record("create with an invalid name", "", err)
	_, err = maps.Create(ctx, configMap("dry", "1"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	k.record("create with a dry run", "", err)
	_, err = maps.Get(ctx, "dry", metav1.GetOptions{})
	k.record("get after the dry run", "", err)
	changed := made.DeepCopy()
	changed.Data["v"] = "2"
	second, err := maps.Update(ctx, changed, metav1.UpdateOptions{})
	k.record("update", second.Data, err)
	_, err = maps.Update(ctx, changed, metav1.UpdateOptions{})
	k.record("update with an old version", "", err)
	same, err := maps.Update(ctx, second, metav1.UpdateOptions{})
	k.record("update without a change", same.ResourceVersion == second.ResourceVersion, err)
	for kind, patch := range map[types.PatchType]string{
		types.JSONPatchType:           `[{"op":"test","path":"/data/v","value":"2"},{"op":"add","path":"/data/j","value":"x"}]`,
		types.MergePatchType:          `{"data":{"v":"2"}}`,
		types.StrategicMergePatchType: `{"metadata":{"labels":{"s":"x"}}}`,
	} {
		_, err := maps.Patch(ctx, "a", kind, []byte(patch), metav1.PatchOptions{})
		k.record("patch", "", err)
	}
	last, err := maps.Get(ctx, "a", metav1.GetOptions{})
	k.record("get", fmt.Sprint(last.Data, last.Labels), err)
	_, err = maps.Patch(ctx, "a", types.JSONPatchType, []byte(`[{"op":"test","path":"/data/v","value":"9"}]`), metav1.PatchOptions{})
	k.record("patch with a failing test", "", err)
	old := metav1.Preconditions{ResourceVersion: &made.ResourceVersion}
	k.record("delete with an old version", "", maps.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &old}))
	k.record("delete", "", maps.Delete(ctx, "a", metav1.DeleteOptions{}))
	k.record("delete again", "", maps.Delete(ctx, "a", metav1.DeleteOptions{}))
}

func apply(k *transcript) {
	ctx, maps := k.t.Context(), k.client.CoreV1().ConfigMaps(k.ns)
	send := func(manager, value string, force bool) {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"v":%q,%q:"x"}}`, value, manager)
		got, err := maps.Patch(ctx, "a", types.ApplyPatchType, []byte(body), metav1.PatchOptions{FieldManager: manager, Force: &force})
		if err != nil {
			k.record("apply as "+manager, "", err)
			return
		}
		k.record("apply as "+manager, fmt.Sprint(got.Data, len(got.ManagedFields)), nil)
	}
	send("one", "1", false)
	send("one", "1", false)
	send("two", "1", false)
	send("two", "2", false)
	send("two", "2", true)
	send("one", "2", false)
}

func watches(k *transcript) {
	ctx, cancel := context.WithTimeout(k.t.Context(), timeout)
	defer cancel()
	maps := k.client.CoreV1().ConfigMaps(k.ns)
	list, err := maps.List(ctx, metav1.ListOptions{})
	k.record("list", len(list.Items), err)
	w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, LabelSelector: "watched=yes"})
	if err != nil {
		k.t.Fatal(err)
	}
	defer w.Stop()
	a := configMap("a", "1")
	for _, label := range []string{"no", "yes", "yes", "no", "yes"} {
		a.Labels = map[string]string{"watched": label, "n": fmt.Sprint(len(a.Labels["n"]) + 1)}
		a.Data["v"] += "."
		var err error
		if a.ResourceVersion == "" {
			a, err = maps.Create(ctx, a, metav1.CreateOptions{})
		} else {
			a, err = maps.Update(ctx, a, metav1.UpdateOptions{})
		}
		if err != nil {
			k.t.Fatal(err)
		}
	}
	if err := maps.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		k.t.Fatal(err)
	}
	for range 5 {
		event, ok := <-w.ResultChan()
		if !ok {
			k.t.Fatalf("the watch ended after %v", k.lines)
		}
		if object, ok := event.Object.(*corev1.ConfigMap); ok {
			k.record("event", fmt.Sprint(event.Type, object.Data, object.Labels["watched"]), nil)
		}
	}
}

func pages(k *transcript) {
	ctx, maps := k.t.Context(), k.client.CoreV1().ConfigMaps(k.ns)
	for i := range 12 {
		if _, err := maps.Create(ctx, configMap(fmt.Sprintf("c%02d", i), "1"), metav1.CreateOptions{}); err != nil {
			k.t.Fatal(err)
		}
	}
	options := metav1.ListOptions{Limit: 5}
	first := ""
	for {
		page, err := maps.List(ctx, options)
		if err != nil {
			k.record("page", "", err)
			return
		}
		names := ""
		for _, item := range page.Items {
			names += item.Name + "=" + item.Data["v"] + " "
		}
		left := int64(0)
		if page.RemainingItemCount != nil {
			left = *page.RemainingItemCount
		}
		k.record("page", fmt.Sprint(names, left), nil)
		if first == "" {
			first = page.ResourceVersion
		}
		k.record("same revision", page.ResourceVersion == first, nil)
		if page.Continue == "" {
			break
		}
		options.Continue = page.Continue
		// Writes between the pages do not appear in the list.
		_, err = maps.Patch(ctx, "c11", types.MergePatchType, []byte(`{"data":{"v":"2"}}`), metav1.PatchOptions{})
		k.record("patch", "", err)
		_ = maps.Delete(ctx, "c10", metav1.DeleteOptions{})
	}
	exact, err := maps.List(ctx, metav1.ListOptions{ResourceVersion: first, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	k.record("list at a revision", len(exact.Items), err)
	now, err := maps.List(ctx, metav1.ListOptions{})
	k.record("list now", len(now.Items), err)
	_, err = maps.List(ctx, metav1.ListOptions{Continue: "nonsense", Limit: 1})
	k.record("list with an invalid token", "", err)
}

func finalizers(k *transcript) {
	ctx, maps := k.t.Context(), k.client.CoreV1().ConfigMaps(k.ns)
	a := configMap("a", "1")
	a.Finalizers = []string{"example.com/wait"}
	_, err := maps.Create(ctx, a, metav1.CreateOptions{})
	k.record("create", "", err)
	k.record("delete", "", maps.Delete(ctx, "a", metav1.DeleteOptions{}))
	got, err := maps.Get(ctx, "a", metav1.GetOptions{})
	k.record("get while it has a finalizer", got.DeletionTimestamp != nil, err)
	more := []byte(`{"metadata":{"finalizers":["example.com/wait","example.com/new"]}}`)
	_, err = maps.Patch(ctx, "a", types.MergePatchType, more, metav1.PatchOptions{})
	k.record("add a finalizer", "", err)
	_, err = maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	k.record("remove the finalizers", "", err)
	_, err = maps.Get(ctx, "a", metav1.GetOptions{})
	k.record("get without finalizers", "", err)
}

func eviction(k *transcript) {
	ctx, pods := k.t.Context(), k.client.CoreV1().Pods(k.ns)
	zero := int64(0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"app": "a"}},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: &zero, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	k.record("create a pod", "", err)
	_, err = pods.Patch(ctx, "p", types.StrategicMergePatchType,
		[]byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	k.record("set it ready", "", err)
	budgets, one := k.client.PolicyV1().PodDisruptionBudgets(k.ns), intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	budget.Spec.MinAvailable, budget.Spec.Selector = &one, &metav1.LabelSelector{MatchLabels: pod.Labels}
	_, err = budgets.Create(ctx, budget, metav1.CreateOptions{})
	k.record("create a budget", "", err)
	k.eventually("the budget is counted", func() error {
		b, err := budgets.Get(ctx, "b", metav1.GetOptions{})
		if err == nil && (b.Status.CurrentHealthy != 1 || b.Status.ObservedGeneration != b.Generation) {
			err = fmt.Errorf("status is %+v", b.Status)
		}
		return err
	})
	evict := func() error {
		return pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p"}})
	}
	k.record("evict", "", evict())
	k.record("delete the budget", "", budgets.Delete(ctx, "b", metav1.DeleteOptions{}))
	k.eventually("the pod is evicted", evict)
	_, err = pods.Get(ctx, "p", metav1.GetOptions{})
	k.record("get the pod", "", err)
}

func tokens(k *transcript) {
	ctx := k.t.Context()
	hour := int64(3600)
	token, err := k.client.CoreV1().ServiceAccounts(k.ns).CreateToken(ctx, "default",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}, metav1.CreateOptions{})
	k.record("create a token", token.Status.Token != "", err)
	review, err := k.client.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token.Status.Token}}, metav1.CreateOptions{})
	k.record("review the token", fmt.Sprint(review.Status.Authenticated, review.Status.User.Username), err)
	review, err = k.client.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token.Status.Token + "x"}}, metav1.CreateOptions{})
	k.record("review an invalid token", review.Status.Authenticated, err)
}

const talkCRD = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"nodes.talk.example.com"},
"spec":{"group":"talk.example.com","scope":"Namespaced","names":{"plural":"nodes","singular":"node","kind":"TalkNode"},"versions":[
{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
"status":{"type":"object","properties":{"ok":{"type":"boolean"}}},
"spec":{"type":"object","properties":{"min":{"type":"integer","default":1},"max":{"type":"integer"}},"x-kubernetes-validations":[
{"rule":"!has(self.max) || self.min <= self.max","message":"min above max"},{"rule":"!has(oldSelf.max) || has(self.max)"}]}}}}}]}}`

func (k *transcript) object(text string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(text)); err != nil {
		k.t.Fatal(err)
	}
	return o
}

// definitions defines a resource with the name of a built-in one.
func definitions(k *transcript) {
	ctx := k.t.Context()
	crd := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	crds := k.dynamic.Resource(crd)
	_, err := crds.Create(ctx, k.object(talkCRD), metav1.CreateOptions{})
	k.record("define", "", err)
	nodes := k.dynamic.Resource(schema.GroupVersionResource{Group: "talk.example.com", Version: "v1", Resource: "nodes"}).Namespace(k.ns)
	k.eventually("it is served", func() error {
		_, err := nodes.List(ctx, metav1.ListOptions{})
		return err
	})
	create := func(name, spec string) (*unstructured.Unstructured, error) {
		object := k.object(`{"apiVersion":"talk.example.com/v1","kind":"TalkNode","metadata":{"name":"` + name + `"},"spec":` + spec + `}`)
		return nodes.Create(ctx, object, metav1.CreateOptions{FieldValidation: "Strict"})
	}
	for _, spec := range []string{`{"min":3,"max":2}`, `{"min":"x"}`, `{"mim":1}`} {
		k.eventually("the schema is known", func() error { // it may be served before its validation is active
			_, err := create("bad", spec)
			if err == nil {
				_ = nodes.Delete(ctx, "bad", metav1.DeleteOptions{})
				return errors.New("accepted")
			}
			k.record("create "+spec, "", err)
			return nil
		})
	}
	made, err := create("good", `{"max":2}`)
	k.record("create", fmt.Sprint(made.Object["spec"], made.GetGeneration()), err)
	got, err := nodes.Patch(ctx, "good", types.MergePatchType, []byte(`{"status":{"ok":true},"spec":{"min":2}}`), metav1.PatchOptions{})
	k.record("patch", fmt.Sprint(got.Object["spec"], got.Object["status"], got.GetGeneration()), err)
	got, err = nodes.Patch(ctx, "good", types.MergePatchType, []byte(`{"status":{"ok":true}}`), metav1.PatchOptions{}, "status")
	k.record("patch the status", fmt.Sprint(got.Object["status"], got.GetGeneration()), err)
	_, err = nodes.Patch(ctx, "good", types.MergePatchType, []byte(`{"spec":{"max":null}}`), metav1.PatchOptions{})
	k.record("patch against a rule", "", err)
	k.record("undefine", "", crds.Delete(ctx, "nodes.talk.example.com", metav1.DeleteOptions{}))
	k.eventually("it is gone", func() error {
		if _, err := nodes.List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("list: %w", err)
		}
		return nil
	})
}

func leases(k *transcript) {
	ctx, all := k.t.Context(), k.client.CoordinationV1().Leases(k.ns)
	holder, seconds := "me", int32(15)
	a, err := all.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds}}, metav1.CreateOptions{})
	k.record("create a lease", *a.Spec.HolderIdentity, err)
	now := metav1.NewMicroTime(time.Now())
	renewed := a.DeepCopy()
	renewed.Spec.RenewTime = &now
	renewed, err = all.Update(ctx, renewed, metav1.UpdateOptions{})
	k.record("renew the lease", renewed.Spec.RenewTime != nil, err)
	_, err = all.Update(ctx, a, metav1.UpdateOptions{})
	k.record("update with an old version", "", err)
}

func garbage(k *transcript) {
	ctx, maps := k.t.Context(), k.client.CoreV1().ConfigMaps(k.ns)
	owner, err := maps.Create(ctx, configMap("owner", "1"), metav1.CreateOptions{})
	k.record("create the owner", "", err)
	child := configMap("child", "1")
	child.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}
	_, err = maps.Create(ctx, child, metav1.CreateOptions{})
	k.record("create the child", "", err)
	k.record("delete the owner", "", maps.Delete(ctx, "owner", metav1.DeleteOptions{}))
	k.eventually("the child is gone", func() error {
		if _, err := maps.Get(ctx, "child", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("get: %w", err)
		}
		return nil
	})
}

func namespaces(k *transcript) {
	ctx := k.t.Context()
	_, err := k.client.CoreV1().Secrets(k.ns).Create(ctx,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	k.record("create", "", err)
	all := k.client.CoreV1().Namespaces()
	k.record("delete the namespace", "", all.Delete(ctx, k.ns, metav1.DeleteOptions{}))
	k.eventually("the namespace is gone", func() error {
		if _, err := all.Get(ctx, k.ns, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("get: %w", err)
		}
		return nil
	})
	_, err = k.client.CoreV1().Secrets(k.ns).Get(ctx, "s", metav1.GetOptions{})
	k.record("get an object of it", "", err)
}
