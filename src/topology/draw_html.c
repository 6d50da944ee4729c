/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A page with the drawing that needs nothing from elsewhere: the mouse moves and scales it, what
 * is under it is explained and its cables stand out, and a node is found by name. The page of a
 * live drawing asks for `picture.svg` each second, puts its content in the place of the picture
 * that it has, and takes a route's two ends from two fields or from double clicks. No state.
 */
#include "topology/draw.h"
#include "topology/picture.h"

static const char head[] =
	"<meta name=\"viewport\" content=\"width=device-width\"><style>"
	"html,body{margin:0;height:100%;background:#fbfbfd;font:14px system-ui,sans-serif}"
	"body>svg{width:100vw;height:100vh;display:block;cursor:grab}"
	"body>svg:active{cursor:grabbing}"
	"#tip{position:fixed;display:none;max-width:34em;padding:.6em .9em;background:#1b263bee;"
	"color:#fff;border-radius:8px;white-space:pre-line;pointer-events:none;"
	"font-variant-numeric:tabular-nums;line-height:1.45}"
	"#tip::first-line{font-weight:700}"
	"input{position:fixed;right:20px;top:18px;padding:.5em .8em;width:13em;border:1px solid "
	"#b9c4d3;border-radius:8px;font:inherit;background:#fff}#from{top:62px}#to{top:106px}"
	"#note{position:fixed;right:20px;top:150px;color:#c1121f}"
	"svg.pick path.l{stroke-opacity:.06}svg.pick path.l.hot{stroke-opacity:1;stroke:#0b5fff;"
	"stroke-width:2.4}.found rect,circle.found{stroke:#ff9f1c;stroke-width:5}"
	"</style></head><body>\n";

static const char fields[] = "<div id=\"tip\"></div><input id=\"find\" placeholder=\"find a node\" "
			     "aria-label=\"find a node\">\n";

static const char live_fields[] =
	"<input id=\"from\" placeholder=\"route from\" aria-label=\"route from\">"
	"<input id=\"to\" placeholder=\"route to\" aria-label=\"route to\">"
	"<div id=\"note\" role=\"status\"></div>\n";

static const char script[] =
	"const svg=document.querySelector('svg'),tip=document.getElementById('tip'),"
	"find=document.getElementById('find');\n"
	"svg.removeAttribute('width');svg.removeAttribute('height');"
	"svg.setAttribute('preserveAspectRatio','xMidYMin');\n"
	"let box=svg.getAttribute('viewBox').split(' ').map(Number),drag=null,hot=[],mouse=null;\n"
	"const show=()=>svg.setAttribute('viewBox',box.join(' '));\n"
	"const text=new Map(),byNode=new Map(),byName=new Map();\n"
	/* Takes the titles out of the picture, for the panel to show. */
	"const index=()=>{text.clear();byNode.clear();byName.clear();\n"
	" for(const t of[...svg.querySelectorAll('title')]){const e=t.parentNode;text.set(e,"
	"t.textContent);t.remove();if(e.id)byName.set(t.textContent.split('\\n')[0]."
	"toLowerCase(),e)}\n"
	" for(const p of svg.querySelectorAll('path[data-a]'))for(const n of[p.dataset.a,"
	"p.dataset.b]){if(!byNode.has(n))byNode.set(n,[]);byNode.get(n).push(p)}};\n"
	"index();\n"
	"const thing=e=>{while(e&&e!==svg&&!text.has(e))e=e.parentNode;return "
	"text.has(e)?e:null};\n"
	"const pick=e=>{for(const p of hot)p.classList.remove('hot');hot=[];\n"
	" if(e&&e.id)hot=byNode.get(e.id.slice(1))||[];else if(e)hot=[e];\n"
	" for(const p of hot)p.classList.add('hot');svg.classList.toggle('pick',hot.length>0)};\n"
	"const explain=e=>{pick(e);if(!e){tip.style.display='none';return}\n"
	" tip.textContent=text.get(e);tip.style.display='block';\n"
	" const w=tip.offsetWidth,h=tip.offsetHeight;\n"
	" tip.style.left=Math.min(mouse.x+16,innerWidth-w-8)+'px';\n"
	" tip.style.top=Math.min(mouse.y+16,innerHeight-h-8)+'px'};\n"
	"svg.addEventListener('mousemove',m=>{mouse={x:m.clientX,y:m.clientY};\n"
	" if(drag){const k=box[2]/svg.clientWidth,l=box[3]/svg.clientHeight,s=Math.max(k,l);\n"
	"  "
	"box[0]=drag[2]-(m.clientX-drag[0])*s;box[1]=drag[3]-(m.clientY-drag[1])*s;show();return}\n"
	" explain(thing(m.target))});\n"
	"svg.addEventListener('mousedown',m=>{drag=[m.clientX,m.clientY,box[0],box[1]];"
	"m.preventDefault()});\n"
	"addEventListener('mouseup',()=>drag=null);\n"
	"svg.addEventListener('mouseleave',()=>{mouse=null;tip.style.display='none';pick(null)});\n"
	"svg.addEventListener('wheel',m=>{m.preventDefault();\n"
	" const p=new "
	"DOMPoint(m.clientX,m.clientY).matrixTransform(svg.getScreenCTM().inverse());\n"
	" const f=Math.exp(Math.sign(m.deltaY)*.15);\n"
	" box=[p.x-(p.x-box[0])*f,p.y-(p.y-box[1])*f,box[2]*f,box[3]*f];show()},{passive:false});\n"
	"const mark=()=>{for(const e of svg.querySelectorAll('.found'))e.classList.remove('found');"
	"\n const e=byName.get(find.value.trim().toLowerCase());if(e)e.classList.add('found');"
	"return e};\n"
	"find.addEventListener('input',()=>{const e=mark();pick(e||null);if(!e)return;\n"
	" const b=e.getBoundingClientRect(),p=new DOMPoint(b.x+b.width/2,b.y+b.height/2).\n"
	"  matrixTransform(svg.getScreenCTM().inverse());\n"
	" box[0]=p.x-box[2]/2;box[1]=p.y-box[3]/2;show()});\n";

static const char live_script[] =
	"const from=document.getElementById('from'),to=document.getElementById('to'),"
	"note=document.getElementById('note');\n"
	"const swap=t=>{const d=new DOMParser().parseFromString(t,'image/svg+xml').documentElement;"
	"\n if(d.nodeName!=='svg')return;svg.replaceChildren(...d.childNodes);index();mark();\n"
	" const e=mouse&&document.elementFromPoint(mouse.x,mouse.y);\n"
	" if(mouse&&!drag)explain(e?thing(e):null);else pick(mark()||null)};\n"
	"const follow=async()=>{try{const u=from.value&&to.value?'?'+new URLSearchParams({from:"
	"from.value,to:to.value}):'';\n"
	"  const r=await fetch('picture.svg'+u);if(r.ok)swap(await r.text());\n"
	"  note.textContent=r.ok?'':r.status===502?'the fabric is down':'there is no picture'}\n"
	" catch(e){note.textContent='nobody answers'}\n"
	" setTimeout(follow,document.hidden?5000:1000)};\n"
	/* A double click on a node names the route's beginning, the next one its end. */
	"svg.addEventListener('dblclick',m=>{const e=thing(m.target);if(!e||!e.id)return;\n"
	" const name=text.get(e).split('\\n')[0];\n"
	" if(!from.value||to.value){from.value=name;to.value=''}else to.value=name});\n"
	"setTimeout(follow,1000);\n";

int drawing_html(const struct drawing *drawing, FILE *out)
{
	int err;

	fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", out);
	picture_text(out, drawing->topology->title);
	fputs("</title>", out);
	fputs(head, out);
	err = drawing_svg(drawing, out);
	fputs(fields, out);
	if (drawing->is_live)
		fputs(live_fields, out);
	if (drawing->nonce)
		fprintf(out, "<script nonce=\"%s\">\n", drawing->nonce);
	else
		fputs("<script>\n", out);
	fputs(script, out);
	if (drawing->is_live)
		fputs(live_script, out);
	fputs("</script></body></html>\n", out);
	return err;
}
