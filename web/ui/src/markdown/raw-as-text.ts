/** Takes the place of `rehype-raw`: HTML in an answer is shown as the text that it is, and its parser is not shipped. */

interface Node {
  type: string;
  value?: string;
  children?: Node[];
}

export default function rawAsText() {
  return (tree: Node) => visit(tree);
}

function visit(node: Node): void {
  if (node.type === 'raw') node.type = 'text';
  node.children?.forEach(visit);
}
