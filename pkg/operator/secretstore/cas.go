package secretstore

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/pki"
)

// configuredCAs returns the user's CAs; nil if there are none.
func (s *Store) configuredCAs(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var m corev1.ConfigMap
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.CAConfigMap}, &m)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", s.Namespace, s.CAConfigMap, err)
	}
	if text := m.Data[CAsKey]; text != "" {
		return []byte(text), nil
	}
	if text := m.BinaryData[CAsKey]; len(text) > 0 {
		return text, nil
	}
	return nil, nil
}

// trusted joins the user's CAs with those from servers; both may be nil.
func (s *Store) trusted(configured, told []byte) ([]byte, error) {
	var certs []*x509.Certificate
	for _, part := range []struct {
		kind, name string
		text       []byte
	}{{"Secret", s.CertSecret, told}, {"ConfigMap", s.CAConfigMap, configured}} {
		if part.text == nil {
			continue
		}
		bundle, err := pki.ParseBundle(part.text)
		if err != nil {
			return nil, fmt.Errorf("%s %s/%s: %s: %w", part.kind, s.Namespace, part.name, CAsKey, err)
		}
		for _, cert := range bundle.Certificates() {
			if !slices.ContainsFunc(certs, cert.Equal) {
				certs = append(certs, cert)
			}
		}
	}
	if len(certs) == 0 {
		return nil, nil
	}
	return pki.NewBundle(certs...).PEM(), nil
}
