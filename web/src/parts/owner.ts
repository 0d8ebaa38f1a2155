/** The owner of a pod, such as Deployment/web; null for a pod that nothing owns, which the API names as its own owner. */
export function realOwner(owner: string | null): string | null {
  return owner === null || owner.startsWith("Pod/") ? null : owner;
}
