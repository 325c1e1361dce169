package kubenode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// manager owns the fields that are applied here.
const manager = "nstance-node"

// The parts of Kubernetes' objects that are read or written here.
type (
	object struct {
		APIVersion string   `json:"apiVersion,omitempty"`
		Kind       string   `json:"kind,omitempty"`
		Metadata   metadata `json:"metadata"`
		Spec       any      `json:"spec,omitempty"`
		Status     any      `json:"status,omitempty"`
	}
	metadata struct {
		Name            string            `json:"name,omitempty"`
		Namespace       string            `json:"namespace,omitempty"`
		UID             string            `json:"uid,omitempty"`
		ResourceVersion string            `json:"resourceVersion,omitempty"`
		Labels          map[string]string `json:"labels,omitempty"`
		OwnerReferences []owner           `json:"ownerReferences,omitempty"`
	}
	owner struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Name       string `json:"name"`
		UID        string `json:"uid"`
	}
	node struct {
		Metadata metadata `json:"metadata"`
		Spec     struct {
			ProviderID string  `json:"providerID"`
			Taints     []taint `json:"taints"`
		} `json:"spec"`
	}
	taint struct {
		Key       string `json:"key"`
		Value     string `json:"value,omitempty"`
		Effect    string `json:"effect"`
		TimeAdded string `json:"timeAdded,omitempty"`
	}
	nodes struct {
		Items []node `json:"items"`
	}
	nodeSpec struct {
		ProviderID string `json:"providerID"`
	}
	nodeStatus struct {
		Addresses   []address         `json:"addresses,omitempty"`
		Allocatable map[string]string `json:"allocatable,omitempty"`
		Capacity    map[string]string `json:"capacity,omitempty"`
		Conditions  []condition       `json:"conditions,omitempty"`
		Info        nodeInfo          `json:"nodeInfo"`
	}
	nodeInfo struct {
		Architecture    string `json:"architecture"`
		OperatingSystem string `json:"operatingSystem"`
		KubeletVersion  string `json:"kubeletVersion"`
	}
	address struct {
		Type    string `json:"type"`
		Address string `json:"address"`
	}
	condition struct {
		Type               string    `json:"type"`
		Status             string    `json:"status"`
		Reason             string    `json:"reason"`
		Message            string    `json:"message"`
		LastHeartbeatTime  time.Time `json:"lastHeartbeatTime"`
		LastTransitionTime time.Time `json:"lastTransitionTime"`
	}
	leaseSpec struct {
		HolderIdentity       string `json:"holderIdentity"`
		LeaseDurationSeconds int    `json:"leaseDurationSeconds"`
		RenewTime            string `json:"renewTime"`
	}
)

// microTime is how a Lease writes a time.
const microTime = "2006-01-02T15:04:05.000000Z07:00"

// list returns the Nodes with these labels.
func (e *endpoint) list(ctx context.Context, labels string) ([]node, error) {
	var found nodes
	err := e.do(ctx, http.MethodGet, "/api/v1/nodes?labelSelector="+url.QueryEscape(labels), "", nil, &found)
	return found.Items, err
}

// version is the API server's, such as v1.36.3.
func (e *endpoint) version(ctx context.Context) (string, error) {
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	err := e.do(ctx, http.MethodGet, "/version", "", nil, &v)
	return v.GitVersion, err
}

// create makes a Node.
func (e *endpoint) create(ctx context.Context, o object, into *node) error {
	return e.do(ctx, http.MethodPost, "/api/v1/nodes?fieldManager="+manager, "application/json", o, into)
}

// apply makes an object have these fields, and makes the object if there is none.
func (e *endpoint) apply(ctx context.Context, path string, o object, into any) error {
	return e.do(ctx, http.MethodPatch, path+"?fieldManager="+manager+"&force=true", "application/apply-patch+yaml", o, into)
}

// removeTaints writes a Node's taints, if the Node is still as it was read.
func (e *endpoint) removeTaints(ctx context.Context, n node, rest []taint) error {
	body := map[string]any{
		"metadata": map[string]any{"resourceVersion": n.Metadata.ResourceVersion},
		"spec":     map[string]any{"taints": rest},
	}
	return e.do(ctx, http.MethodPatch, "/api/v1/nodes/"+n.Metadata.Name, "application/merge-patch+json", body, nil)
}

// get reads a Node.
func (e *endpoint) get(ctx context.Context, name string, into *node) error {
	return e.do(ctx, http.MethodGet, "/api/v1/nodes/"+name, "", nil, into)
}

// remove deletes a Node, if it is still the one that was read. One that is gone is no
// error.
func (e *endpoint) remove(ctx context.Context, n node) error {
	body := map[string]any{"preconditions": map[string]any{"uid": n.Metadata.UID}}
	return e.do(ctx, http.MethodDelete, "/api/v1/nodes/"+n.Metadata.Name, "application/json", body, nil)
}

// refusal is what an API server answers that does not do what it was asked for.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

// refused reports whether an error is a refusal with a status.
func refused(err error, status int) bool {
	var r *refusal
	return errors.As(err, &r) && r.status == status
}

// answerLimit bounds what is read of an answer, in bytes.
const answerLimit = 64 << 20

func (e *endpoint) do(ctx context.Context, method, path, content string, body, into any) error {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, e.base+path, sent)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	if content != "" {
		req.Header.Set("Content-Type", content)
	}
	if e.token != "" {
		req.Header.Set("Authorization", "Bearer "+e.token)
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, req.URL.Path, err)
	}
	switch {
	case method == http.MethodDelete && resp.StatusCode == http.StatusNotFound:
		return nil
	case resp.StatusCode >= http.StatusMultipleChoices:
		return &refusal{status: resp.StatusCode, text: fmt.Sprintf("%s %s: %s: %s", method, req.URL.Path, resp.Status, words(text))}
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s %s: %w", method, req.URL.Path, err)
	}
	return nil
}

// words is what an API server says of a refusal.
func words(answer []byte) string {
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(answer, &status) != nil || status.Message == "" {
		return fmt.Sprintf("%.200q", answer)
	}
	return status.Message
}
