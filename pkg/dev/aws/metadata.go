package aws

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/provider/aws/awsfake"
)

// MetadataURL returns what AWS_EC2_METADATA_SERVICE_ENDPOINT is on a machine. Each
// machine has an address of its own for it, since clients take no path; it is served until Serve ends.
func (s *Stand) MetadataURL(ctx context.Context, instance string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if url, ok := s.metadata[instance]; ok {
		return url, nil
	}
	if !slices.ContainsFunc(s.cfg.Cloud.Machines(), func(m awsfake.Machine) bool { return m.ID == instance }) {
		return "", fmt.Errorf("no machine %.80q", instance)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("serve the metadata of %s: %w", instance, err)
	}
	server := &http.Server{Handler: s.cfg.Cloud.Metadata(instance), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // until endMetadata
	s.services = append(s.services, server)
	s.metadata[instance] = "http://" + l.Addr().String()
	return s.metadata[instance], nil
}

func (s *Stand) endMetadata() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, server := range s.services {
		_ = server.Close() // whoever is being answered has no use for it
	}
}

func (s *Stand) where(w http.ResponseWriter, r *http.Request) {
	url, err := s.MetadataURL(r.Context(), r.PathValue("instance"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, url)
}
