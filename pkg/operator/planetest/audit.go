package planetest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// auditPolicy logs the metadata of all requests, except those of administrators.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    userGroups: ["system:masters"]
  - level: None
    users: ["system:apiserver"]
  - level: Metadata
`

// Call is one request to the API server. A watch is logged twice, at its start and end.
type Call struct {
	User     string
	Verb     string
	Group    string
	Resource string // with its subresource, as in pods/eviction
	Code     int    // HTTP status
}

// String formats the call like a rule of a role.
func (c Call) String() string { return fmt.Sprintf("%s %s of %q", c.Verb, c.Resource, c.Group) }

func audited(env *envtest.Environment, folder string) error {
	policy := filepath.Join(folder, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	env.ControlPlane.GetAPIServer().Configure().
		Append("audit-policy-file", policy).Append("audit-log-path", auditLog(folder)).Append("audit-log-mode", "blocking")
	return nil
}

func auditLog(folder string) string { return filepath.Join(folder, "audit.log") }

// Calls returns all requests of users that are no administrators, in order; none if the
// control plane was never started. It must be called after Stop.
func (s *SharedCore) Calls() ([]Call, error) {
	if s.logs == "" {
		return nil, nil
	}
	file, err := os.Open(auditLog(s.logs))
	if err != nil {
		return nil, fmt.Errorf("read the API server's audit log: %w", err)
	}
	defer file.Close()
	var all []Call
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef *struct{ Resource, Subresource, APIGroup string }
			Status    *struct{ Code int } `json:"responseStatus"`
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("read the API server's audit log: %w", err)
		}
		if e.ObjectRef == nil || e.Status == nil { // not about a resource, or without a response
			continue
		}
		c := Call{User: e.User.Username, Verb: e.Verb, Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource, Code: e.Status.Code}
		if e.ObjectRef.Subresource != "" {
			c.Resource += "/" + e.ObjectRef.Subresource
		}
		all = append(all, c)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the API server's audit log: %w", err)
	}
	return all, nil
}
